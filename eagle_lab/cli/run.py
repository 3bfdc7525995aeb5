"""eagle-lab run: data, train, export, bench, one after another; what is done already is not done again."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.cli.bench import measured
from eagle_lab.cli.report import write
from eagle_lab.cli.show import head_table
from eagle_lab.cli.stages import load_prompts, train_stage
from eagle_lab.config.paths import in_sweep
from eagle_lab.config.schema import Config, SpecKind
from eagle_lab.track.tracker import tracker


def run(config: Config, out: Path) -> int:
    from eagle_lab.report.table import line

    with tracker(config, out, "run") as track:
        load_prompts(config)  # a bad line in it must not be found after the training
        if config.spec.kind is not SpecKind.none and config.head is None:
            trained = train_stage(config, track)
            head_table(trained, brief=in_sweep(out) and trained.reused)
        rows = measured(config, out, track)
    if in_sweep(out):
        print(line(rows[-1]))
    else:
        write(out)
    return 0
