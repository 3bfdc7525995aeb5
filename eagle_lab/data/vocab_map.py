"""The draft vocabulary: which target tokens the head can propose.

Files and engines hold it as d2t int64 [Vd], OFFSETS (target id of draft id i = i + d2t[i]), and t2d bool [V].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.data.dataset import Dataset


@dataclass(frozen=True)
class VocabMap:
    d2t: np.ndarray
    """int64 [Vd]: target id minus draft id."""
    t2d: np.ndarray
    """bool [V]: the target ids that are in the draft vocabulary."""

    def __post_init__(self) -> None:
        """Raises LabError for a pair that is not one map: sizes, types, order, or the two disagreeing."""
        if self.d2t.dtype != np.int64 or self.t2d.dtype != np.bool_ or self.d2t.ndim != 1 or self.t2d.ndim != 1:
            raise LabError(
                f"vocabulary map: d2t is {self.d2t.dtype} {self.d2t.shape}, t2d {self.t2d.dtype} {self.t2d.shape}; "
                "int64 [draft vocab] and bool [target vocab] are wanted."
            )
        ids = self.target_ids
        if len(ids) == 0 or ids[0] < 0 or ids[-1] >= len(self.t2d) or np.any(np.diff(ids) <= 0):
            raise LabError(
                f"vocabulary map: d2t + arange must ascend strictly within 0..{len(self.t2d) - 1}, it starts "
                f"{ids[:4].tolist()} and ends {ids[-4:].tolist()}. d2t holds offsets, not ids."
            )
        if not np.array_equal(np.flatnonzero(self.t2d), ids):
            raise LabError(
                f"vocabulary map: t2d names {int(self.t2d.sum())} target ids, d2t {len(ids)}, and they are not the "
                "same set. The two files belong to different heads."
            )

    @classmethod
    def of(cls, target_ids: np.ndarray, vocab_size: int) -> VocabMap:
        """From ascending target ids."""
        t2d = np.zeros(vocab_size, dtype=np.bool_)
        t2d[target_ids] = True
        return cls(d2t=target_ids.astype(np.int64) - np.arange(len(target_ids), dtype=np.int64), t2d=t2d)

    @cached_property
    def target_ids(self) -> np.ndarray:
        """int64 [Vd]: the target id of each draft id."""
        return self.d2t + np.arange(len(self.d2t), dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        return digest({"vocab_size": len(self.t2d), "target_ids": self.target_ids.tolist()})


def build_map(dataset: Dataset, draft_vocab_size: int, vocab_size: int, always: Sequence[int]) -> VocabMap:
    """The `draft_vocab_size` target tokens most frequent among the supervised tokens of the train rows.

    `always` (end-of-turn tokens) is in whatever its count; equal counts go to the lower id, which also fills up with
    unseen ids. Raises LabError when the sizes do not allow it.
    """
    if not 1 <= draft_vocab_size <= vocab_size:
        raise LabError(
            f"draft.vocab_size={draft_vocab_size}: the target has {vocab_size} tokens. Set it between 1 and that."
        )
    forced = sorted(set(always))
    if forced and not 0 <= forced[0] <= forced[-1] < vocab_size:
        raise LabError(f"vocabulary map: end-of-turn tokens {forced} are outside the target's {vocab_size} tokens.")
    if len(forced) > draft_vocab_size:
        raise LabError(f"draft.vocab_size={draft_vocab_size} has no room for the end-of-turn tokens {forced}.")
    counts = np.bincount(dataset.train.answer_ids(), minlength=vocab_size)
    if len(counts) > vocab_size:
        raise LabError(
            f"vocabulary map: the dataset has token id {len(counts) - 1}, the target only {vocab_size} tokens."
        )
    counts[forced] = counts.max() + 1
    # stable: among equal counts the lower id comes first
    chosen = np.argsort(-counts, kind="stable")[:draft_vocab_size]
    return VocabMap.of(np.sort(chosen), vocab_size)


def coverage(vocab_map: VocabMap, ids: np.ndarray | Sequence[int]) -> float | None:
    """Share of the ids that the head can propose: an upper bound on its acceptance rate. None for no ids."""
    found = np.asarray(ids, dtype=np.int64)
    return float(vocab_map.t2d[found].mean()) if len(found) else None
