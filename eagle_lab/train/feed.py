"""Dataset rows -> packed batches: captures the frozen target's states and lays them out for the unroll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from eagle_lab.data.dataset import Row
from eagle_lab.draft.unroll import Batch
from eagle_lab.ops.dispatch import OpSet
from eagle_lab.ops.teacher.reference import Best
from eagle_lab.ops.unroll_attention.layout import Layout, sent
from eagle_lab.target.model import TargetModel


@dataclass(frozen=True)
class States:
    """The target's view of one row of L tokens with R supervised positions.

    aux [L, A*H], last [R, H] (after x[t+1] of each position t), and of the logits that follow from it `best`: their
    log-sum-exp and argmax over the full vocabulary, [R] each.
    """

    aux: Tensor
    last: Tensor
    best: Best

    def to(self, device: torch.device) -> States:
        """Copies, that keep no larger tensor alive."""
        aux, last, *best = (t.to(device, copy=True) for t in (self.aux, self.last, *self.best))
        return States(aux, last, Best(*best))


def supervised(row: Row) -> range:
    """Positions t that are trained: from the last prompt token, where serving starts its first draft, on.

    The teacher of t at step 0 is the target after x[t+1], an answer token that does not end the turn.
    """
    end = len(row.input_ids) - 1 - (1 if row.ends_with_eos else 0)
    return range(row.answer_start - 1, end)


Source = Callable[[Sequence[int]], list[States]]
"""The states of some rows of a dataset, by their numbers."""


class Online:
    """The frozen target runs whenever states are asked for."""

    def __init__(
        self, target: TargetModel, rows: Sequence[Row], device: torch.device, ops: OpSet | None = None
    ) -> None:
        self.target, self.rows, self.device, self.ops = target, rows, device, ops or OpSet()

    def __call__(self, indices: Sequence[int]) -> list[States]:
        rows = [self.rows[i] for i in indices]
        lengths, begins, counts = _sizes(rows)
        ids = np.zeros((len(rows), lengths.max()), dtype=np.int64)
        for at, row in enumerate(rows):
            ids[at, : len(row.input_ids)] = row.input_ids
        captured = self.target.capture(sent(torch.from_numpy(ids), self.device))
        # one gather for all rows. With several operations for each, beside the thread that trains, a step of SmolLM2
        # took 90 ms with 64 documents, whatever their tokens, and 27 ms with 16 (an H200)
        first = np.arange(len(rows)) * ids.shape[1]
        aux = self._gathered(captured.aux, np.repeat(first, lengths) + _ramps(lengths))
        last = self._gathered(captured.last, np.repeat(first + begins + 1, counts) + _ramps(counts))
        best = self.ops.best(last, self.target.lm_head_weight)  # once for all rows: 16 small products take longer
        sizes = counts.tolist()
        parts = (aux.split(lengths.tolist()), last.split(sizes), best.lse.split(sizes), best.top.split(sizes))
        return [States(aux, last, Best(lse, top)) for aux, last, lse, top in zip(*parts, strict=True)]

    def _gathered(self, states: Tensor, at: np.ndarray) -> Tensor:
        return states.flatten(0, 1)[sent(torch.from_numpy(at), self.device)]


def _sizes(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each row: its tokens, its first supervised position, and how many there are."""
    spans = [supervised(row) for row in rows]
    columns = ([len(row.input_ids) for row in rows], [s.start for s in spans], [len(s) for s in spans])
    lengths, begins, counts = (np.array(column, dtype=np.int64) for column in columns)
    return lengths, begins, counts


def _ramps(counts: np.ndarray) -> np.ndarray:
    """0 .. n - 1 for each n, one behind the other."""
    ends = counts.cumsum()
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)


class Cached:
    """Asks `source` for each row once and keeps its states on the CPU (small data, many epochs).

    There, since the states of an epoch outgrow a GPU long before they outgrow the host.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.kept: dict[int, States] = {}

    def __call__(self, indices: Sequence[int]) -> list[States]:
        new = [i for i in indices if i not in self.kept]
        if new:
            self.kept |= {i: s.to(torch.device("cpu")) for i, s in zip(new, self.source(new), strict=True)}
        return [self.kept[i] for i in indices]


@dataclass(frozen=True)
class Share:
    """Which rows of every step are this process's, and in how many batches it takes them."""

    rank: int = 0
    world: int = 1
    parts: int = 1

    @property
    def alone(self) -> bool:
        return self.world == self.parts == 1

    def of(self, indices: Sequence[int]) -> list[list[int]]:
        """One list per part; some may be empty."""
        mine = list(indices[self.rank :: self.world])
        return [mine[part :: self.parts] for part in range(self.parts)]


class Feed:
    """Makes batches of rows and their states on the compute device."""

    def __init__(self, rows: Sequence[Row], source: Source, device: torch.device) -> None:
        self.rows, self.states, self.device = rows, source, device

    def batch(self, indices: Sequence[int]) -> Batch:
        return pack([self.rows[i] for i in indices], self.states(indices)).to(self.device)

    def parts(self, indices: Sequence[int], share: Share, trained: Callable[[Batch], Tensor]) -> list[Batch]:
        """This process's batches of one optimiser step; trained(batch) [steps, N]: its rows that pay a loss.

        Where it has nothing to do for one, that is a row whose loss counts nothing: all processes step together.
        """
        if share.alone:
            return [self.batch(indices)]
        mine = share.of(indices)
        flat = [i for part in mine for i in part]
        states = iter(self.states(flat) if flat else [])
        made = [
            pack([self.rows[i] for i in part], [next(states) for _ in part]).to(self.device)
            if part
            else self._idle(indices[0])
            for part in mine
        ]
        whole = torch.stack([trained(batch).sum(-1) for batch in made]).sum(0)
        return [replace(batch, whole=whole) for batch in made]

    def _idle(self, index: int) -> Batch:
        batch = self.batch([index])
        return replace(batch, steps_left=torch.zeros_like(batch.steps_left))


def pack(rows: Sequence[Row], states: Sequence[States]) -> Batch:
    """Concatenates documents; each one's supervised positions become consecutive rows."""
    lengths, begins, counts = _sizes(rows)
    row = _ramps(counts)

    def tensor(numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers.astype(np.int64))

    return Batch(
        input_ids=tensor(np.concatenate([r.input_ids for r in rows])),
        position=tensor(_ramps(lengths)),
        aux=torch.cat([s.aux for s in states]),
        layout=Layout(
            doc_start=tensor(np.r_[0, lengths.cumsum()]),
            row_doc=tensor(np.repeat(np.arange(len(rows)), counts)),
            row_pos=tensor(np.repeat(begins, counts) + row),
        ),
        steps_left=tensor(np.repeat(counts, counts) - row),
        teacher_hidden=torch.cat([s.last for s in states]),
        teacher_lse=torch.cat([s.best.lse for s in states]),
        teacher_top=torch.cat([s.best.top for s in states]),
    )


def document(target: TargetModel, ids: list[int], answer_start: int, device: torch.device) -> Batch:
    """One document of these tokens; every position from the last prompt token on is a row."""
    row = Row(np.asarray(ids, dtype=np.int32), answer_start, ends_with_eos=False)
    return Feed([row], Online(target, [row], device), device).batch([0])
