"""eagle-lab run: data, train, export, bench, one after another; what is done already is not done again."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.cli import bench
from eagle_lab.cli.report import write
from eagle_lab.cli.show import head_table
from eagle_lab.cli.stages import train_stage
from eagle_lab.config.schema import Config, SpecKind


def run(config: Config, out: Path) -> int:
    if config.spec.kind is not SpecKind.none and config.head is None:
        head_table(train_stage(config))
    code = bench.run(config, out)
    if not (out / "status.json").exists():  # a sweep reports once, over all its points
        write(out)
    return code
