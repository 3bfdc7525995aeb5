"""Lightning callbacks that a run always has."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, RichProgressBar
from lightning.pytorch.utilities.exceptions import SIGTERMException

from eagle_lab.config.errors import Preempted
from eagle_lab.config.files import append_jsonl, read_jsonl, write_text
from eagle_lab.config.gpus import gpu_named
from eagle_lab.draft.unroll import Batch
from eagle_lab.track.tracker import Tracker


def _within_a_step(trainer: L.Trainer, batch_idx: int) -> bool:
    """More batches of the same optimiser step follow."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches != 0


class Metrics(Callback):
    """Appends the logged metrics to a JSONL file every n steps, and after each held-out pass; tells the tracker.

    On resume, rows past the checkpoint's step are dropped: the file has each step once.
    """

    def __init__(self, path: Path, every: int, track: Tracker, rows: Sequence[list[int]] = ()) -> None:
        """rows: the dataset's rows of every step, to name those of a step that was skipped."""
        self.path, self.every, self.track, self.rows = path, every, track, rows

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero and self.path.exists():
            rows = read_jsonl(self.path, {"step": int}, f"Remove {self.path} to go on without it.", torn_tail=True)
            kept = [r for r in rows if r["step"] <= trainer.global_step]
            write_text(self.path, "".join(json.dumps(r) + "\n" for r in kept))
        self.told = len(self._skipped(pl_module))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if not trainer.is_global_zero or _within_a_step(trainer, batch_idx):
            return
        for step in self._skipped(pl_module)[self.told :]:
            rows = self.rows[step] if step < len(self.rows) else []
            append_jsonl(self.path, {"step": trainer.global_step, "skipped_rows": rows})
            self.track.log({"train/skipped_steps": float(self.told + 1)}, step=trainer.global_step)
            print(f"training: step {step} skipped, its gradient is not finite; rows {rows}", file=sys.stderr)
            self.told += 1
        if trainer.global_step % self.every == 0:
            self._append(trainer, "train/")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Not in on_validation_epoch_end, which comes before the module's own has logged this pass."""
        if trainer.is_global_zero:
            self._append(trainer, "held_out/")

    @staticmethod
    def _skipped(module: L.LightningModule) -> list[int]:
        found: list[int] = getattr(module, "skipped", [])
        return found

    def _append(self, trainer: L.Trainer, prefix: str) -> None:
        values = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith(prefix)}
        values = {k: v for k, v in values.items() if math.isfinite(v)}  # JSON has no NaN; skipped_rows says it
        if values:
            append_jsonl(self.path, {"step": trainer.global_step, **values})
            self.track.log(values, step=trainer.global_step)


class Throughput(Callback):
    """Logs, over the last n steps: tokens/s, the share of the time spent waiting for data, and peak GPU memory.

    Tokens are those of the batches' sequences, supervised or not. Where the target runs in every step, waiting is all
    that its pass keeps the loop from going on; beside a GPU a thread makes the next batch meanwhile. Stands before
    Metrics among the callbacks.

    waited: seconds that the loop has waited for batches so far. flops: multiply-adds x 2 of a step, for TFLOP/s and,
    where the GPU is a known one, their share of its peak (MFU).
    """

    def __init__(self, every: int, waited: Callable[[], float], flops: Callable[[int], float] | None = None) -> None:
        self.every, self.waited, self.flops = every, waited, flops

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._begin()

    def _begin(self) -> None:
        self.began, self.waited_before = time.perf_counter(), self.waited()
        self.tokens = 0
        self.steps: list[int] = []

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.tokens += batch.input_ids.numel() * trainer.world_size
        if _within_a_step(trainer, batch_idx):
            return
        self.steps.append(trainer.global_step - 1)
        if trainer.global_step % self.every == 0:
            for name, value in self._found(batch.input_ids.device, trainer.world_size).items():
                pl_module.log(f"train/{name}", value, batch_size=1)
            self._begin()

    def _found(self, device: torch.device, devices: int) -> dict[str, float]:
        found = {}
        if device.type == "cuda":
            torch.cuda.synchronize()
            found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        taken = time.perf_counter() - self.began
        found |= {"tokens_s": self.tokens / taken, "data_wait": (self.waited() - self.waited_before) / taken}
        if self.flops is not None:
            speed = sum(map(self.flops, self.steps)) / taken / devices / 1e12
            found["tflop_s"] = speed
            gpu = gpu_named(torch.cuda.get_device_name()) if device.type == "cuda" else None
            if gpu is not None:
                found["mfu"] = speed / gpu.tflop_s
        return found

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The held-out pass is no training."""
        self._begin()


class AuxStates(Callback):
    """Logs the root mean square of each aux state every n steps: deeper ones are larger, one at zero is not read."""

    def __init__(self, every: int, states: int) -> None:
        """states: how many a batch's `aux` has side by side; the values are numbered from the lowest layer's, 0."""
        self.every, self.states = every, states

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if _within_a_step(trainer, batch_idx) or trainer.global_step % self.every:
            return
        aux = batch.aux.view(len(batch.aux), self.states, -1)
        for number, value in enumerate(aux.float().square().mean((0, 2)).sqrt()):
            pl_module.log(f"train/aux_rms_{number}", value, batch_size=1)


class Preemption(Callback):
    """On SIGTERM: a checkpoint after the step in hand, then Preempted, so that the same command can go on."""

    def __init__(self, checkpoints: Path) -> None:
        self.checkpoints = checkpoints

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        # all processes or none: one that stops alone would leave the others waiting
        if not _within_a_step(trainer, batch_idx) and trainer.strategy.reduce_boolean_decision(
            trainer.received_sigterm, all=False
        ):
            self._stop(trainer)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Lightning notices the signal by itself between two steps and within a held-out pass."""
        if isinstance(exception, SIGTERMException):
            self._stop(trainer)

    def _stop(self, trainer: L.Trainer) -> None:
        step = trainer.global_step
        trainer.save_checkpoint(self.checkpoints / f"step={step}.ckpt")
        raise Preempted(f"training: SIGTERM, stopped at step {step} with a checkpoint. The same command goes on.")


class ProgressLines(Callback):
    """One line every n steps, for output that goes to a file: a bar would fill it with cursor codes."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if not trainer.is_global_zero or _within_a_step(trainer, batch_idx):
            return
        if trainer.global_step % self.every == 0:
            loss = float(trainer.callback_metrics["train/loss"])
            steps = int(trainer.num_training_batches) // trainer.accumulate_grad_batches
            print(f"training: step {trainer.global_step} of {steps}, loss {loss:.3f}", flush=True)


def progress() -> Callback:
    """Rich on a terminal, lines elsewhere."""
    return RichProgressBar() if sys.stderr.isatty() else ProgressLines(every=25)
