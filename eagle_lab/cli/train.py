"""eagle-lab train: data, then the draft head."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.cli.show import head_table
from eagle_lab.cli.stages import train_stage
from eagle_lab.config.schema import Config
from eagle_lab.track.tracker import tracker


def run(config: Config, out: Path) -> int:
    with tracker(config, out, "train") as track:
        trained = train_stage(config, track)
    head_table(trained)
    return 0
