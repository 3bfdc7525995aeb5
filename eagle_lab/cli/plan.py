"""eagle-lab plan: what a config resolves to, and what its training will take, before anything starts."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from eagle_lab.cli.stages import known_dataset, locate_target
from eagle_lab.config.aux_layers import resolve
from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import expanded
from eagle_lab.config.schema import Capture, Config, TargetFacts

if TYPE_CHECKING:
    from eagle_lab.plan.training import Work


def run(config: Config, out: Path) -> int:
    import torch

    from eagle_lab.draft.shape import head_shape
    from eagle_lab.plan.resolve import checked, resolved
    from eagle_lab.plan.training import planned
    from eagle_lab.train.device import compute_device
    from eagle_lab.train.optimizer import build_optimizer

    build_optimizer(config.optim.optimizer, [torch.nn.Parameter(torch.zeros(1))])  # or a LabError
    config = _with_its_vocabulary(config)
    facts = config.target.facts
    if None in asdict(facts).values():
        facts = _read_facts(config)
    layers, _ = checked(config, facts)
    shape = head_shape(config.draft, asdict(facts), len(resolve(config.aux, layers)))
    # a plan for another machine is made on any
    here = torch.cuda.get_device_name() if not config.plan.gpu and compute_device(config).type == "cuda" else None
    work = work_of(config)
    lines = resolved(config, facts, shape) | planned(config, facts, shape, work, here)
    if config.plan.measure:
        lines |= measured(config, work, out)
    table = Table(show_header=False)
    for label, value in lines.items():
        table.add_row(label, f"{value:,}" if isinstance(value, int) and value > 99999 else str(value))
    Console().print(table)
    return 0


def work_of(config: Config) -> Work:
    """The dataset's rows where it is made already, otherwise the most that its sources can give."""
    from eagle_lab.draft.cost import Document
    from eagle_lab.plan.training import Work, at_most
    from eagle_lab.train.feed import supervised
    from eagle_lab.train.schedule import plan

    dataset = known_dataset(config)
    if dataset is None:
        documents, every, known = at_most(config), [], None
    else:
        every = [Document(len(row.input_ids), len(supervised(row))) for row in dataset.rows]
        documents, known = [every[i] for i in dataset.train.indices], f"{config.data.name} ({dataset.digest[:12]})"
    t, lengths = config.trainer, [d.tokens for d in documents]
    steps = plan(lengths, t.batch_size, t.max_epochs, t.max_steps, config.seed, t.batch_tokens).steps
    tokens, rows = (sum(column) for column in zip(*(every or documents), strict=True))
    return Work(documents, tokens, rows, steps, known)


def measured(config: Config, work: Work, out: Path) -> dict[str, str]:
    """What some real steps took; their files go again."""
    from eagle_lab.plan.training import hours
    from eagle_lab.train.device import check_settings
    from eagle_lab.train.trial import STEPS, trial

    if not work.steps:
        raise LabError("plan.measure=true: this config trains no step. Raise trainer.max_epochs.")
    check_settings(config)
    target = locate_target(config)
    share = work.largest[:: config.trainer.devices]  # one device's
    documents = share * STEPS
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".measured") as aside:
        found = trial(config, target, documents, len(share), Path(aside))
    once = sum(d.tokens for d in work.documents) if config.trainer.capture is Capture.cached else work.tokens_trained
    first = min(once, work.tokens_trained)
    taken = first / found.first_tokens_s + (work.tokens_trained - first) / found.later_tokens_s
    speed = f"{found.first_tokens_s:,.0f} tokens/s"
    if first < work.tokens_trained:
        speed += f" in the first epoch, {found.later_tokens_s:,.0f} after it"
    many = f", on each of {config.trainer.devices} devices" if config.trainer.devices > 1 else ""
    memory = "" if found.peak_gib is None else f", {found.peak_gib:.1f} GiB of GPU memory"
    text = f"{speed}{memory}; the steps take {hours(taken / config.trainer.devices)}{many}"
    return {"measured here, largest step": text}


def _with_its_vocabulary(config: Config) -> Config:
    """draft.init=head has the draft vocabulary of the head it starts from."""
    from eagle_lab.doctor.replay import shape_of

    if config.draft.init_head is None:
        return config
    size = shape_of(expanded("draft.init_head", config.draft.init_head)).draft_vocab_size
    return replace(config, draft=replace(config.draft, vocab_size=size))


def _read_facts(config: Config) -> TargetFacts:
    """A target without a preset: its own config.json knows."""
    found = locate_target(config).config
    known = {k: found.get(k) for k in asdict(config.target.facts) if k != "architecture"}
    return TargetFacts(architecture=found["architectures"][0], **known)
