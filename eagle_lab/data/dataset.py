"""A finished dataset, row by row, as the trainer reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_tensors
from eagle_lab.config.stage import finished
from eagle_lab.data.store import ENDS_WITH_EOS, HOLDOUT


@dataclass(frozen=True)
class Row:
    """One assistant turn behind its prompt."""

    input_ids: np.ndarray
    """int32 [L]: the prompt as served, then the answer."""
    answer_start: int
    """Index of the first answer token, 1 <= answer_start < L; everything from there on is supervised."""
    ends_with_eos: bool
    """The last token ends the turn (False for an answer that was cut)."""

    @property
    def answer_ids(self) -> np.ndarray:
        return self.input_ids[self.answer_start :]


class Rows(Sequence[Row]):
    """Some rows of the flat arrays, made when asked for."""

    def __init__(self, tokens: dict[str, np.ndarray], indices: np.ndarray) -> None:
        self._tokens = tokens
        self.indices = indices
        """int64 [n]: line numbers in rows.jsonl, from 0."""

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Rows: ...
    def __getitem__(self, at: int | slice) -> Row | Rows:
        if isinstance(at, slice):
            return Rows(self._tokens, self.indices[at])
        row = int(self.indices[at])
        start, end = self._tokens["offsets"][row : row + 2]
        return Row(
            input_ids=self._tokens["input_ids"][start:end],
            answer_start=int(self._tokens["answer_start"][row]),
            ends_with_eos=bool(self._tokens["flags"][row] & ENDS_WITH_EOS),
        )

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    def at(self, indices: np.ndarray) -> Rows:
        """Other rows of the same arrays."""
        return Rows(self._tokens, indices)

    def supervised(self, indices: np.ndarray) -> np.ndarray:
        """int64 [n]: supervised tokens of these rows."""
        found: np.ndarray = np.diff(self._tokens["offsets"])[indices] - self._tokens["answer_start"][indices]
        return found

    def answer_ids(self) -> np.ndarray:
        """int32: the supervised tokens of all rows, one after the other."""
        return np.concatenate([np.zeros(0, dtype=np.int32), *(row.answer_ids for row in self)])


@dataclass(frozen=True)
class Dataset:
    rows: Rows
    train: Rows
    holdout: Rows
    """Whole conversations, by the hash of their ids; empty when data.holdout is 0."""
    manifest: dict[str, Any]

    @property
    def digest(self) -> str:
        return self.manifest["digest"]

    def cut(self, tokens: int | None) -> Dataset:
        """With training rows, drawn at random, that have about so many supervised tokens; a larger cut holds a smaller.

        Held-out rows stay, so that heads of different cuts can be compared. LabError where there are not so many.
        """
        if tokens is None:
            return self
        drawn = np.random.default_rng(0).permutation(self.train.indices)
        so_far = self.train.supervised(drawn).cumsum()
        if not len(so_far) or so_far[-1] < tokens:
            has = so_far[-1] if len(so_far) else 0
            raise LabError(
                f"trainer.max_tokens={tokens}: the dataset has {has:,} supervised tokens to train on. Lower it, leave "
                "it out, or raise the counts of data.sources."
            )
        kept = np.sort(drawn[: int(np.searchsorted(so_far, tokens)) + 1])
        return replace(self, train=self.train.at(kept))


def load(path: Path) -> Dataset:
    """The dataset of a finished stage. Raises LabError for one that is unfinished, changed or has a bad row."""
    manifest = finished(path)
    if manifest is None:
        raise LabError(f"{path}: no finished dataset (no manifest.json). Run `eagle-lab data` with the same config.")
    file = path / "tokens.safetensors"
    tokens = read_tensors(file, f"Remove {path} to redo it.", "np")
    lengths, start = np.diff(tokens["offsets"]), tokens["answer_start"]
    bad = np.flatnonzero((start < 1) | (start >= lengths))
    if len(bad):
        raise LabError(f"{file}: row {bad[0]} has no prompt or no supervised token. Remove {path} to redo it.")
    held = (tokens["flags"] & HOLDOUT) > 0
    return Dataset(
        rows=Rows(tokens, np.arange(len(lengths))),
        train=Rows(tokens, np.flatnonzero(~held)),
        holdout=Rows(tokens, np.flatnonzero(held)),
        manifest=manifest,
    )
