"""The rows and steps of a training, and what some of its steps take when they are made."""

from __future__ import annotations

import tempfile
from pathlib import Path

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Capture, Config
from eagle_lab.data.dataset import Dataset
from eagle_lab.draft.cost import Document
from eagle_lab.plan.training import Work, at_most, hours
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.train.feed import supervised
from eagle_lab.train.schedule import plan


def work_of(config: Config, dataset: Dataset | None) -> Work:
    """dataset: None where it is not made yet; the most that its sources can give then."""
    if dataset is None:
        documents, every, known = at_most(config), [], None
    else:
        every = [Document(len(row.input_ids), len(supervised(row))) for row in dataset.rows]
        train = dataset.cut(config.trainer.max_tokens).train
        documents, known = [every[i] for i in train.indices], f"{config.data.name} ({dataset.digest[:12]})"
    t, lengths = config.trainer, [d.tokens for d in documents]
    steps = plan(lengths, t.batch_size, t.max_epochs, t.max_steps, config.seed, t.batch_tokens).steps
    tokens, rows = (sum(column) for column in zip(*(every or documents), strict=True))
    return Work(documents, tokens, rows, steps, known)


def measured(config: Config, target: LocatedTarget, work: Work, out: Path) -> str:
    """What some real steps of the largest size took; their files go again."""
    from eagle_lab.train.trial import STEPS, trial  # brings lightning, a second

    if not work.steps:
        raise LabError("plan.measure=true: this config trains no step. Raise trainer.max_epochs.")
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
    return f"{speed}{memory}; the steps take {hours(taken / config.trainer.devices)}{many}"
