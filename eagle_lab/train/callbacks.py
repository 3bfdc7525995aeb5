"""Lightning callbacks that a run always has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, RichProgressBar, TQDMProgressBar

from eagle_lab.config.files import append_jsonl, read_jsonl, write_text


class MetricsFile(Callback):
    """Appends the logged metrics to a JSONL file every n steps, and after each held-out pass.

    On resume, rows past the checkpoint's step are dropped: the file has each step once.
    """

    def __init__(self, path: Path, every: int) -> None:
        self.path, self.every = path, every

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.path.exists():
            kept = [r for r in read_jsonl(self.path, torn_tail=True) if r["step"] <= trainer.global_step]
            write_text(self.path, "".join(json.dumps(r) + "\n" for r in kept))

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if trainer.global_step % self.every == 0:
            self._append(trainer, "train/")

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._append(trainer, "held_out/")

    def _append(self, trainer: L.Trainer, prefix: str) -> None:
        values = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith(prefix)}
        if values:
            append_jsonl(self.path, {"step": trainer.global_step, **values})


def progress() -> Callback:
    """Rich on a terminal, one line per refresh elsewhere (a log file gets no cursor codes)."""
    return RichProgressBar() if sys.stderr.isatty() else TQDMProgressBar(refresh_rate=50)
