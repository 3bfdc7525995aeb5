"""Lightning callbacks that a run always has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, RichProgressBar

from eagle_lab.config.files import append_jsonl, read_jsonl, write_text
from eagle_lab.track.tracker import Tracker


class Metrics(Callback):
    """Appends the logged metrics to a JSONL file every n steps, and after each held-out pass; tells the tracker.

    On resume, rows past the checkpoint's step are dropped: the file has each step once.
    """

    def __init__(self, path: Path, every: int, track: Tracker) -> None:
        self.path, self.every, self.track = path, every, track

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.path.exists():
            rows = read_jsonl(self.path, {"step": int}, f"Remove {self.path} to go on without it.", torn_tail=True)
            kept = [r for r in rows if r["step"] <= trainer.global_step]
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
            self.track.log(values, step=trainer.global_step)


class ProgressLines(Callback):
    """One line every n steps, for output that goes to a file: a bar would fill it with cursor codes."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if trainer.global_step % self.every == 0:
            loss = float(trainer.callback_metrics["train/loss"])
            print(
                f"training: step {trainer.global_step} of {trainer.num_training_batches}, loss {loss:.3f}", flush=True
            )


def progress() -> Callback:
    """Rich on a terminal, lines elsewhere."""
    return RichProgressBar() if sys.stderr.isatty() else ProgressLines(every=25)
