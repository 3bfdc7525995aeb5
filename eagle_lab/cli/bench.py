"""eagle-lab bench: measures a spec point beside plain decoding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from eagle_lab.cli.show import in_sweep
from eagle_lab.config.schema import Config, SpecKind


def run(config: Config, out: Path) -> int:
    from eagle_lab.report.table import line, show
    from eagle_lab.report.write import conditions

    rows = measured(config, out)
    if in_sweep(out):
        print(line(rows[-1]))
    else:
        show(rows, conditions(rows[0]))
    return 0


def measured(config: Config, out: Path) -> list[dict[str, Any]]:
    """Writes out/rows.jsonl and returns them: the baseline's row and, with speculation, the point's."""
    from eagle_lab.cli.expectation import add_expectations
    from eagle_lab.cli.stages import head_stage, load_prompts, locate_target, outputs
    from eagle_lab.evaluate.bench import bench_point
    from eagle_lab.evaluate.heads import aux_width
    from eagle_lab.evaluate.measure import Subject, write_rows
    from eagle_lab.serve.launch import Launch
    from eagle_lab.serve.process import sharing
    from eagle_lab.track.tracker import tracker

    prompts = load_prompts(config)
    if config.suite.seed and not config.suite.temperature:
        print(f"suite.seed={config.suite.seed} changes nothing at suite.temperature=0: nothing is drawn.")
    target = locate_target(config)
    subject = Subject(target=target.name, target_digest=target.digest)
    launch = Launch(target.path, config.server, config.spec, head=None, target_digest=target.digest)
    width, head = 0, None
    if config.spec.kind is not SpecKind.none:
        head = head_stage(config)
        subject = Subject(target.name, target.digest, str(head.path), head.digest, head.aux_layers or None)
        launch = replace(launch, head=head.path)
        width = aux_width(head.path, target.hidden_size)
    out.mkdir(parents=True, exist_ok=True)
    with sharing(), tracker(config, out, "bench") as track:
        rows = bench_point(launch, subject, prompts, outputs(config), width)
        add_expectations(config, target, head, rows)
        for row in rows:
            track.log_row(row)
    write_rows(out / "rows.jsonl", rows)
    return rows
