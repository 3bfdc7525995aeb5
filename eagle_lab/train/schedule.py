"""Which rows make which step: fixed by the seed alone, so a resumed run continues where it stopped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np


@dataclass(frozen=True)
class Plan:
    """All steps of a run, epochs one after another. A step is a list of row indices."""

    steps: list[list[int]]
    steps_per_epoch: int


def plan(
    lengths: Sequence[int], batch_size: int, epochs: int, max_steps: int, seed: int, batch_tokens: int | None = None
) -> Plan:
    """Shuffles per epoch; rows of similar length share a step (pools of 8 batches are sorted), to pad little.

    A step has at most batch_size rows and batch_tokens tokens with padding; a row that is longer has one of its own.
    """
    steps: list[list[int]] = []
    per_epoch = 0
    for epoch in range(epochs):
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(len(lengths))
        batches: list[list[int]] = []
        for pool in np.split(order, range(8 * batch_size, len(order), 8 * batch_size)):
            pool = pool[np.argsort(np.asarray(lengths)[pool], kind="stable")]
            batches += grouped(pool.tolist(), lengths, batch_size, batch_tokens)
        steps += [batches[i] for i in generator.permutation(len(batches))]
        per_epoch = per_epoch or len(batches)
    return Plan(steps if max_steps < 0 else steps[:max_steps], per_epoch)


def grouped(pool: list[int], lengths: Sequence[int], size: int, tokens: int | None) -> list[list[int]]:
    """A pool of rows in ascending length, cut where another row would be too many or too long."""
    found: list[list[int]] = []
    for row in pool:
        full = not found or len(found[-1]) == size
        if full or (tokens is not None and (len(found[-1]) + 1) * lengths[row] > tokens):
            found.append([])
        found[-1].append(row)
    return found


def padding(steps: Sequence[Sequence[int]], lengths: Sequence[int]) -> float:
    """Share of the target's passes that is padding; 0.0 without steps."""
    padded = sum(len(step) * max(lengths[i] for i in step) for step in steps)
    return 1 - sum(lengths[i] for step in steps for i in step) / padded if padded else 0.0


class Steps:
    """The loader Lightning iterates: batches from the step where training stands, built on demand.

    build: the batches of a step, `each` of them. ahead: for how many steps they are built beforehand, by a thread,
    while the GPU is at work.
    """

    def __init__(
        self,
        steps: list[list[int]],
        build: Callable[[list[int]], Sequence[object]],
        at: Callable[[], int],
        *,
        each: int = 1,
        ahead: int = 0,
    ) -> None:
        self.steps, self.build, self.at, self.each, self.ahead = steps, build, at, each, ahead
        self.waited = 0.0
        """Seconds that the loop was kept from going on, all told."""

    def __len__(self) -> int:
        return len(self.steps) * self.each

    def state_dict(self) -> dict[str, int]:
        """Lightning asks resumable loaders for their position; ours is the trainer's own step."""
        return {}

    def load_state_dict(self, _: dict[str, int]) -> None:
        pass

    def __iter__(self) -> Iterator[object]:
        steps = self.steps[self.at() :]
        if not self.ahead:
            for indices in steps:
                yield from self._timed(partial(self.build, indices))
            return
        with ThreadPoolExecutor(max_workers=1) as pool:
            pending: deque[Future[Sequence[object]]] = deque()
            for indices in steps:
                pending.append(pool.submit(self.build, indices))
                if len(pending) > self.ahead:
                    yield from self._timed(pending.popleft().result)
            while pending:
                yield from self._timed(pending.popleft().result)

    def _timed(self, made: Callable[[], Sequence[object]]) -> Sequence[object]:
        began = time.perf_counter()
        try:
            return made()
        finally:
            self.waited += time.perf_counter() - began
