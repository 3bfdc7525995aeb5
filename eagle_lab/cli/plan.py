"""eagle-lab plan: what a config resolves to, before anything starts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from eagle_lab.config.schema import Config, TargetFacts
from eagle_lab.plan.resolve import resolved


def run(config: Config, out: Path) -> int:
    import torch

    from eagle_lab.train.optimizer import build_optimizer

    build_optimizer(config.optim.optimizer, [torch.nn.Parameter(torch.zeros(1))])  # or a LabError
    facts = config.target.facts
    if None in asdict(facts).values():
        facts = _read_facts(config)
    table = Table(show_header=False)
    for label, value in resolved(config, facts).items():
        table.add_row(label, f"{value:,}" if isinstance(value, int) and value > 99999 else str(value))
    Console().print(table)
    return 0


def _read_facts(config: Config) -> TargetFacts:
    """A target without a preset: its own config.json knows."""
    from eagle_lab.cli.stages import locate_target

    found = locate_target(config).config
    known = {k: found.get(k) for k in asdict(config.target.facts) if k != "architecture"}
    return TargetFacts(architecture=found["architectures"][0], **known)
