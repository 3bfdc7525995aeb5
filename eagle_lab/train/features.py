"""The target's states of a whole dataset on disk: captured once, read by any number of trainings without the target.

    features-00000.safetensors   the states of consecutive rows, in shards of about SHARD_BYTES:
        aux [T, A*H], last [R, H] in bfloat16; lse [R] float32; top [R] int32, for T tokens and R supervised positions

Shards are written aside and renamed, so a killed capture goes on with the first that is not there. The stage's manifest
(config.stage) has size and digest of each and is compared before they are read: one that is cut, changed or of another
capture is named and refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from eagle_lab.config.files import replacing
from eagle_lab.data.dataset import Row
from eagle_lab.ops.teacher.reference import Best
from eagle_lab.train.feed import Source, States, supervised

SHARD_BYTES = 512 << 20
"""Written and read in one go; 40,000 tokens of an 8B target."""


def shards(rows: Sequence[Row], width: int, hidden: int) -> list[range]:
    """Consecutive row numbers of each shard. width: aux layers x hidden size."""
    found: list[range] = []
    first, size = 0, 0
    for i, row in enumerate(rows):
        size += 2 * (len(row.input_ids) * width + len(supervised(row)) * hidden)
        if size >= SHARD_BYTES or i + 1 == len(rows):
            found.append(range(first, i + 1))
            first, size = i + 1, 0
    return found


def capture(
    out: Path,
    rows: Sequence[Row],
    source: Source,
    width: int,
    hidden: int,
    at_once: int,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Writes the shards that are not in `out` yet, `at_once` rows per pass of the target; returns the stage's facts."""
    plan = shards(rows, width, hidden)
    for number, span in enumerate(plan):
        file = out / name(number)
        if file.exists():
            continue
        tell(f"features: shard {number + 1} of {len(plan)}")
        states = _captured(source, rows, span, at_once)
        with replacing(file) as aside:
            save_file(
                {
                    "aux": torch.cat([s.aux for s in states]),
                    "last": torch.cat([s.last for s in states]),
                    "lse": torch.cat([s.best.lse for s in states]),
                    "top": torch.cat([s.best.top for s in states]),
                },
                aside,
            )
    return {
        "rows": len(rows),
        "tokens": sum(len(row.input_ids) for row in rows),
        "supervised_tokens": sum(len(supervised(row)) for row in rows),
        "width": width,
        "hidden_size": hidden,
        "first_rows": [span.start for span in plan],
    }


def _captured(source: Source, rows: Sequence[Row], span: range, at_once: int) -> list[States]:
    """Rows of similar length pass together, to pad little."""
    order = sorted(span, key=lambda i: len(rows[i].input_ids))
    found: dict[int, States] = {}
    for i in range(0, len(order), at_once):
        part = order[i : i + at_once]
        for row, s in zip(part, source(part), strict=True):
            narrow = States(s.aux.bfloat16(), s.last.bfloat16(), Best(s.best.lse.float(), s.best.top.int()))
            found[row] = narrow.to(torch.device("cpu"))
    return [found[i] for i in span]


def name(number: int) -> str:
    return f"features-{number:05d}.safetensors"


class Stored:
    """Reads states from the shards of a finished capture, memory-mapped: only the rows asked for are touched."""

    def __init__(self, path: Path, facts: dict[str, Any], rows: Sequence[Row]) -> None:
        self.path, self.first_rows = path, facts["first_rows"]
        self._places = list(self._layout(rows))

    def _layout(self, rows: Sequence[Row]) -> Iterator[tuple[int, range, range]]:
        """Of each row: its shard, and where its tokens and its supervised positions are in it."""
        token = position = 0
        for i, row in enumerate(rows):
            number = bisect_right(self.first_rows, i) - 1
            if i == self.first_rows[number]:
                token = position = 0
            tokens, positions = len(row.input_ids), len(supervised(row))
            yield number, range(token, token + tokens), range(position, position + positions)
            token, position = token + tokens, position + positions

    def __call__(self, indices: Sequence[int]) -> list[States]:
        return [self._row(*self._places[i]) for i in indices]

    def _row(self, number: int, tokens: range, positions: range) -> States:
        part = _opened(self.path / name(number))
        aux = part.get_slice("aux")[tokens.start : tokens.stop]
        last, lse, top = (part.get_slice(n)[positions.start : positions.stop] for n in ("last", "lse", "top"))
        return States(aux, last, Best(lse, top.long()))


@lru_cache(maxsize=64)
def _opened(file: Path) -> Any:
    return safe_open(file, "pt")
