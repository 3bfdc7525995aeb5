"""Where numbers go besides the disk: a protocol, and the null object that stands for nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from eagle_lab.config.schema import Config, TrackKind


class Tracker(Protocol):
    def log(self, values: dict[str, float], step: int) -> None:
        """Values of one training step."""

    def log_row(self, row: dict[str, Any]) -> None:
        """A measurement: its scalars become the run's summary, under SPEC/NAME for the baseline row."""


class NullTracker:
    def log(self, values: dict[str, float], step: int) -> None:
        pass

    def log_row(self, row: dict[str, Any]) -> None:
        pass


@contextmanager
def tracker(config: Config, out: Path, job_type: str) -> Iterator[Tracker]:
    """The tracker of this run of a verb; finished when the block ends, as failed if it ends by an exception."""
    if config.track.kind is TrackKind.none:
        yield NullTracker()
        return
    from eagle_lab.track.weights_and_biases import wandb_run

    with wandb_run(config, out, job_type) as run:
        yield run
