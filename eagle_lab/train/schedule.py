"""Which rows make which step: fixed by the seed alone, so a resumed run continues where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Plan:
    """All steps of a run, epochs one after another. A step is a list of row indices."""

    steps: list[list[int]]
    steps_per_epoch: int


def plan(lengths: Sequence[int], batch_size: int, epochs: int, max_steps: int, seed: int) -> Plan:
    """Shuffles per epoch; rows of similar length share a step (pools of 8 batches are sorted), to pad little."""
    steps: list[list[int]] = []
    per_epoch = -(-len(lengths) // batch_size)
    for epoch in range(epochs):
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(len(lengths))
        batches = []
        for pool in np.split(order, range(8 * batch_size, len(order), 8 * batch_size)):
            pool = pool[np.argsort(np.asarray(lengths)[pool], kind="stable")]
            batches += [pool[i : i + batch_size].tolist() for i in range(0, len(pool), batch_size)]
        steps += [batches[i] for i in generator.permutation(len(batches))]
    return Plan(steps if max_steps < 0 else steps[:max_steps], per_epoch)


class Steps:
    """The loader Lightning iterates: batches from the step where training stands, built on demand."""

    def __init__(self, steps: list[list[int]], build: Callable[[list[int]], object], at: Callable[[], int]) -> None:
        self.steps, self.build, self.at = steps, build, at

    def __len__(self) -> int:
        return len(self.steps)

    def state_dict(self) -> dict[str, int]:
        """Lightning asks resumable loaders for their position; ours is the trainer's own step."""
        return {}

    def load_state_dict(self, _: dict[str, int]) -> None:
        pass

    def __iter__(self) -> Iterator[object]:
        for indices in self.steps[self.at() :]:
            yield self.build(indices)
