"""Some real training steps on made-up text: what they take is what a training will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_jsonl
from eagle_lab.config.schema import Capture, Config, DraftInit, Keep
from eagle_lab.data.dataset import Dataset, Rows
from eagle_lab.draft.cost import Document
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.track.tracker import NOWHERE
from eagle_lab.train.fit import capture_features, train_head

STEPS = 8
"""Per epoch; the first half warms up."""
NEVER = 10**9


class Trial(NamedTuple):
    first_tokens_s: float
    """Tokens per second in the first epoch."""
    later_tokens_s: float
    """In the others, where states are kept."""
    peak_gib: float | None
    """Of GPU memory; None on a CPU."""


def trial(config: Config, located: LocatedTarget, documents: Sequence[Document], batch: int, out: Path) -> Trial:
    """Trains one epoch of these documents in `out`, two where the states of the first are kept.

    documents: of STEPS steps of `batch` each. Raises LabError where they do not fit into the GPU's memory.
    """
    import torch

    dataset = made_up(documents, located.vocab_size, config.seed)
    epochs = 2 if config.trainer.capture is Capture.cached else 1
    trainer = replace(
        config.trainer,
        max_epochs=epochs,
        max_steps=STEPS * epochs,
        max_tokens=None,
        devices=1,
        batch_size=batch,
        batch_tokens=None,
        log_every=STEPS // 2,
        checkpoint_every=NEVER,
        keep=Keep.last,
        patience=None,
    )
    draft = replace(config.draft, init=DraftInit.random, init_head=None)  # the same sizes, from nowhere
    config = replace(config, trainer=trainer, draft=draft)
    try:
        features = None
        if trainer.capture is Capture.stored:
            features = (out, capture_features(config, located, dataset, out))
        train_head(config, located, dataset, out, NOWHERE, features)
    except torch.OutOfMemoryError as e:
        raise LabError(
            f"plan: {trainer.batch_size} rows of up to {max(d.tokens for d in documents)} tokens do not fit into this "
            "GPU's memory. Lower trainer.batch_tokens or trainer.batch_size (trainer.accumulate keeps the step's rows)."
        ) from e
    rows = read_jsonl(out / "metrics.jsonl", {"step": int}, "Plan once more.")
    at = {row["step"]: row for row in rows if "train/tokens_s" in row}
    first, last = at[STEPS], at[STEPS * epochs]
    return Trial(first["train/tokens_s"], last["train/tokens_s"], last.get("train/peak_gib"))


def made_up(documents: Sequence[Document], vocab_size: int, seed: int) -> Dataset:
    """Rows of these sizes with tokens drawn evenly; none is held out."""
    generator = np.random.default_rng(seed)
    lengths = np.array([d.tokens for d in documents])
    tokens = {
        "input_ids": generator.integers(0, vocab_size, lengths.sum(), dtype=np.int32),
        "offsets": np.concatenate([[0], lengths.cumsum()]),
        "answer_start": np.array([d.tokens - d.rows for d in documents], dtype=np.int32),
        "flags": np.zeros(len(documents), dtype=np.uint8),
    }
    every, none = np.arange(len(documents)), np.arange(0)
    return Dataset(Rows(tokens, every), Rows(tokens, every), Rows(tokens, none), {"digest": "made up"})
