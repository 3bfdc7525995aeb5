"""Answered prompts -> the files of a dataset: tokens.safetensors, rows.jsonl and the facts for manifest.json.

tokens.safetensors, for n rows of T tokens in all: input_ids int32 [T]; offsets int64 [n + 1] (row r is
input_ids[offsets[r] : offsets[r + 1]]); answer_start int32 [n], the index within the row of the first supervised
token; flags uint8 [n].
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from eagle_lab.config.digest import file_digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import replacing, write_text
from eagle_lab.data.answers import Answered

ENDS_WITH_EOS, HOLDOUT, CUT = 1, 2, 4
MASK_BINS = 10


@dataclass(frozen=True)
class Limits:
    """What a row must satisfy, and which rows are held out."""

    max_length: int
    eos_token_ids: list[int]
    vocab_size: int
    holdout: float
    seed: int


def write(folder: Path, answered: list[Answered], limits: Limits) -> dict[str, Any]:
    """Writes both files and returns the facts (counts, mask ratio, digest of the tokens).

    Raises LabError when no row with a supervised token is left, or an id lies outside the target's vocabulary.
    """
    held = _held_out(sorted({a.conversation.id for a in answered}), limits)
    dropped: Counter[str] = Counter()
    rows: list[tuple[Answered, list[int], int]] = []
    for one in answered:
        ids = [*one.prompt_ids, *one.answer_ids][: limits.max_length]
        supervised = ids[len(one.prompt_ids) :]
        if not one.answer_ids or (len(one.answer_ids) == 1 and one.answer_ids[0] in limits.eos_token_ids):
            dropped["empty answer"] += 1
        elif not supervised:
            dropped["prompt fills max_length"] += 1
        else:
            flags = (
                ENDS_WITH_EOS * (supervised[-1] in limits.eos_token_ids)
                | HOLDOUT * (one.conversation.id in held)
                | CUT * (len(supervised) < len(one.answer_ids))
            )
            rows.append((one, ids, flags))
    _refuse(rows, dropped, limits)
    tokens = {
        "input_ids": np.concatenate([np.asarray(ids, dtype=np.int32) for _, ids, _ in rows]),
        "offsets": np.cumsum([0, *(len(ids) for _, ids, _ in rows)], dtype=np.int64),
        "answer_start": np.asarray([len(one.prompt_ids) for one, _, _ in rows], dtype=np.int32),
        "flags": np.asarray([flags for _, _, flags in rows], dtype=np.uint8),
    }
    with replacing(folder / "tokens.safetensors") as aside:
        save_file(tokens, aside)
    write_text(folder / "rows.jsonl", "".join(_line(number, *row) for number, row in enumerate(rows)))
    return _facts(tokens, rows) | {
        "dropped": dict(dropped),
        "tokens_digest": file_digest(folder / "tokens.safetensors"),
    }


def _held_out(ids: list[str], limits: Limits) -> set[str]:
    """Whole conversations: those whose hashed ids come first. At least one of two or more, unless the share is 0."""
    if not limits.holdout or len(ids) < 2:
        return set()
    ranked = sorted(ids, key=lambda i: hashlib.sha256(f"{limits.seed}:{i}".encode()).digest())
    return set(ranked[: min(max(1, round(limits.holdout * len(ids))), len(ids) - 1)])


def _refuse(rows: list[tuple[Answered, list[int], int]], dropped: Counter[str], limits: Limits) -> None:
    if not rows:
        listed = ", ".join(f"{n} {reason}" for reason, n in dropped.most_common()) or "none was answered"
        raise LabError(
            f"dataset: no row with a supervised token is left ({listed}). Raise data.max_length ({limits.max_length}) "
            "or server.context_length, or look at the answers in the folder of the answers stage."
        )
    for one, ids, _ in rows:
        if max(ids) >= limits.vocab_size or min(ids) < 0:
            raise LabError(
                f"dataset: conversation {one.conversation.id} has token id {max(ids)}, the target's vocabulary is "
                f"{limits.vocab_size}: another model answered, or its tokenizer is not the target's. With server=url, "
                "check which model that server runs."
            )
    if all(flags & HOLDOUT for _, _, flags in rows):
        raise LabError("dataset: every row left is held out; there is nothing to train on. Lower data.holdout.")


def _line(number: int, one: Answered, ids: list[int], flags: int) -> str:
    """Where row `number` comes from, in text."""
    row = {
        "row": number,
        "conversation": one.conversation.id,
        "turn": one.turn,
        "category": one.conversation.category,
        "holdout": bool(flags & HOLDOUT),
        "tokens": len(ids),
        "supervised": len(ids) - len(one.prompt_ids),
        "finish_reason": one.finish_reason,
        "user": one.conversation.turns[one.turn],
        "answer": one.text,
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def _facts(tokens: dict[str, np.ndarray], rows: list[tuple[Answered, list[int], int]]) -> dict[str, Any]:
    lengths = np.diff(tokens["offsets"])
    supervised = lengths - tokens["answer_start"]
    ratio = supervised / lengths
    held = (tokens["flags"] & HOLDOUT) > 0
    answers = [ids[len(one.prompt_ids) :] for one, ids, _ in rows]
    return {
        "rows": len(rows),
        "conversations": len({one.conversation.id for one, _, _ in rows}),
        "holdout_rows": int(held.sum()),
        "holdout_conversations": len({one.conversation.id for one, _, flags in rows if flags & HOLDOUT}),
        "tokens": int(lengths.sum()),
        "supervised_tokens": int(supervised.sum()),
        "supervised_tokens_train": int(supervised[~held].sum()),
        "unique_supervised_tokens": len(set().union(*answers)),
        "mask_ratio": round(float(supervised.sum() / lengths.sum()), 4),
        # rows by share of supervised tokens: [0, 0.1), [0.1, 0.2), ...
        "mask_ratio_histogram": np.histogram(ratio, bins=MASK_BINS, range=(0, 1))[0].tolist(),
        "longest_row": int(lengths.max()),
        "ends_with_eos": int(((tokens["flags"] & ENDS_WITH_EOS) > 0).sum()),
        "cut_at_max_length": int(((tokens["flags"] & CUT) > 0).sum()),
        "finish_reasons": dict(Counter(one.finish_reason for one, _, _ in rows)),
    }
