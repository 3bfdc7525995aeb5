"""eagle-lab bench: measures a spec point beside plain decoding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from eagle_lab.config.paths import in_sweep
from eagle_lab.config.schema import Config, SpecKind
from eagle_lab.track.tracker import Tracker, row_summary, tracker


def run(config: Config, out: Path) -> int:
    from eagle_lab.report.table import line, show
    from eagle_lab.report.write import conditions

    with tracker(config, out, "bench") as track:
        rows = measured(config, out, track)
    if in_sweep(out):
        print(line(rows[-1]))
    else:
        show(rows, conditions(rows[0]))
    return 0


def measured(config: Config, out: Path, track: Tracker) -> list[dict[str, Any]]:
    """Writes out/rows.jsonl and returns them: the baseline's row and, with speculation, the point's."""
    from eagle_lab.cli.doctor import stop_at_failures
    from eagle_lab.cli.expectation import add_expectations
    from eagle_lab.cli.stages import head_stage, load_prompts, locate_target, outputs
    from eagle_lab.evaluate.bench import bench_point
    from eagle_lab.evaluate.heads import aux_width
    from eagle_lab.evaluate.measure import Subject, write_rows
    from eagle_lab.serve.launch import Launch
    from eagle_lab.serve.process import sharing

    prompts = load_prompts(config)
    if config.suite.seed and not config.suite.temperature:
        print(f"suite.seed={config.suite.seed} changes nothing at suite.temperature=0: nothing is drawn.")
    target = locate_target(config)
    subject = Subject(target=target.name, target_digest=target.digest)
    launch = Launch(target.path, config.server, config.spec, head=None, target_digest=target.digest)
    track.link(target=target.digest)
    width, head = 0, None
    if config.spec.kind is not SpecKind.none:
        head = head_stage(config, track)
        subject = Subject(target.name, target.digest, str(head.path), head.digest, head.aux_layers or None)
        launch = replace(launch, head=head.path)
        stop_at_failures(config, target, head.path, None)
        width = aux_width(head.path, target.hidden_size)
    out.mkdir(parents=True, exist_ok=True)
    with sharing():
        rows = bench_point(launch, subject, prompts, outputs(config), width)
        add_expectations(config, target, head, rows)
    if config.doctor.ignore:
        rows = [{**row, "ignored_checks": ", ".join(config.doctor.ignore)} for row in rows]
    write_rows(out / "rows.jsonl", rows)
    track.link(evaluation={row["spec"]: row["fingerprint"] for row in rows})
    track.summary(row_summary(rows))
    return rows
