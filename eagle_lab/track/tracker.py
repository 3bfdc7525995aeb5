"""Where numbers go besides the disk: a protocol, and the null object that stands for nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from eagle_lab.config.schema import Config, TrackKind

FIRST_POSITION = {
    "histogram": 0,
    **dict.fromkeys(("survival", "conditional", "proxy_survival", "replayed_survival", "replayed_served_survival"), 1),
}
"""Columns of a row that are lists over draft positions, and the position of their first value."""


@dataclass(frozen=True)
class Artifact:
    """Files that a stage has written, and what they were made from."""

    type: str
    """dataset or model."""
    name: str
    digest: str
    """Names this version."""
    files: list[Path]
    metadata: dict[str, Any]


class Tracker(Protocol):
    def log(self, values: dict[str, float], step: int) -> None:
        """Values of one training step."""

    def summary(self, values: dict[str, Any]) -> None:
        """What the run comes to, one value per name."""

    def link(self, **digests: Any) -> None:
        """What the run is made from and makes, as it becomes known; None is not known."""

    def made(self, artifact: Artifact) -> None:
        """An output of this run."""

    def used(self, artifact: Artifact) -> None:
        """An input of this run."""


class NullTracker:
    def log(self, values: dict[str, float], step: int) -> None:
        pass

    def summary(self, values: dict[str, Any]) -> None:
        pass

    def link(self, **digests: Any) -> None:
        pass

    def made(self, artifact: Artifact) -> None:
        pass

    def used(self, artifact: Artifact) -> None:
        pass


NOWHERE = NullTracker()


@contextmanager
def tracker(config: Config, out: Path, job_type: str) -> Iterator[Tracker]:
    """The tracker of this run of a verb; finished when the block ends, as failed if it ends by an exception."""
    if config.track.kind is TrackKind.none:
        yield NOWHERE
        return
    from eagle_lab.track.weights_and_biases import wandb_run

    with wandb_run(config, out, job_type) as run:
        yield run


def row_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summary of a point: the columns of its row, the last one, by name, those of its baseline as none/NAME.

    A list over draft positions becomes one value per position (survival/1); what else is no scalar stays in rows.jsonl.
    """
    found: dict[str, Any] = {}
    for row in rows:
        prefix = "" if row is rows[-1] else f"{row['spec']}/"
        for name, value in row.items():
            if name in FIRST_POSITION:
                found |= {f"{prefix}{name}/{k}": v for k, v in enumerate(value, FIRST_POSITION[name]) if v is not None}
            elif isinstance(value, int | float | str) or (name == "aux_layers" and value):
                found[prefix + name] = value
    return found
