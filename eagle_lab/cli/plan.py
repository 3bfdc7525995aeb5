"""eagle-lab plan: what a config resolves to, and what its training will take, before anything starts."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from eagle_lab.cli.stages import known_dataset, locate_target
from eagle_lab.config.aux_layers import resolve
from eagle_lab.config.paths import head_directory
from eagle_lab.config.schema import Config

if TYPE_CHECKING:
    pass


def run(config: Config, out: Path) -> int:
    import torch

    from eagle_lab.draft.shape import head_shape
    from eagle_lab.plan.resolve import checked, facts_of, resolved
    from eagle_lab.plan.training import planned
    from eagle_lab.plan.work import measured, work_of
    from eagle_lab.train.device import check_settings, compute_device
    from eagle_lab.train.optimizer import build_optimizer

    build_optimizer(config.optim.optimizer, [torch.nn.Parameter(torch.zeros(1))])  # or a LabError
    config = _with_its_vocabulary(config)
    facts = config.target.facts
    if None in asdict(facts).values():
        facts = facts_of(locate_target(config).config)
    layers, _ = checked(config, facts)
    shape = head_shape(config.draft, asdict(facts), len(resolve(config.aux, layers)))
    # a plan for another machine is made on any
    here = torch.cuda.get_device_name() if not config.plan.gpu and compute_device(config).type == "cuda" else None
    work = work_of(config, known_dataset(config))
    lines = resolved(config, facts, shape) | planned(config, facts, shape, work, here)
    if config.plan.measure:
        check_settings(config)
        lines["measured here, largest step"] = measured(config, locate_target(config), work, out)
    table = Table(show_header=False)
    for label, value in lines.items():
        table.add_row(label, f"{value:,}" if isinstance(value, int) and value > 99999 else str(value))
    Console().print(table)
    return 0


def _with_its_vocabulary(config: Config) -> Config:
    """draft.init=head has the draft vocabulary of the head it starts from."""
    from eagle_lab.doctor.replay import shape_of

    if config.draft.init_head is None:
        return config
    size = shape_of(head_directory("draft.init_head", config.draft.init_head)).draft_vocab_size
    return replace(config, draft=replace(config.draft, vocab_size=size))
