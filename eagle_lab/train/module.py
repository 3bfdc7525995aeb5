"""The LightningModule: one optimiser step of the training-time test, and its held-out metrics."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Loss, OovPolicy, Optim, TeacherMass
from eagle_lab.draft.head import Head
from eagle_lab.draft.unroll import Batch
from eagle_lab.ops.distill_loss.losses import Objective
from eagle_lab.train.metrics import StepCounts
from eagle_lab.train.optimizer import build_optimizer

MOST_SKIPPED = 10
"""Steps in a row whose gradient is not finite, before training gives up."""


class StepRows(NamedTuple):
    """What each row does at each unroll step, all [steps, N]."""

    valid: Tensor
    """bool: it has a teacher."""
    teacher: Tensor
    """Which row that is."""
    trained: Tensor
    """bool: it pays a loss."""


def step_rows(batch: Batch, t2d: Tensor, config: Loss) -> StepRows:
    """t2d [V]: the draft vocabulary."""
    valid, teacher = batch.step_masks(config.unroll_steps)
    masked = config.oov is OovPolicy.masked
    return StepRows(valid, teacher, valid & t2d[batch.teacher_top][teacher] if masked else valid)


class HeadModule(L.LightningModule):
    """Trains `head`; `target_lm_head` [V, H] gives the teacher. Only the head is in the state dict.

    Loss per step i: that of `loss.kind` over the supervised rows that have a teacher at that step, divided by their
    number (not by B*S: padding and prompts must not change the gradient, SafeAILab/EAGLE#340); the total is
    sum_i step_decay**i * loss_i. Where a step is several batches, of this process or of others, the number is that of
    all of them: Lightning's means over batches and processes are undone.
    """

    target_rows: Tensor

    def __init__(
        self,
        head: Head,
        target_lm_head: Tensor,
        loss: Loss,
        optim: Optim,
        total_steps: int,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        """noise: of trainer.noise, drawn from `seed` and the step alone."""
        super().__init__()
        self.head = head
        self.noise, self.seed = noise, seed
        ids = torch.arange(head.shape.draft_vocab_size) + head.d2t.cpu()
        self.register_buffer("target_rows", target_lm_head.cpu()[ids].clone(), persistent=False)
        self.loss_config, self.optim_config, self.total_steps = loss, optim, total_steps
        self.held_out = StepCounts(loss.unroll_steps)
        self._part_losses: list[Tensor] = []
        self._part_counts = StepCounts(loss.unroll_steps)
        self.skipped: list[int] = []
        """Steps whose gradient was not finite."""

    def configure_model(self) -> None:
        """Cuts the head between the processes, where Lightning's strategy has a device mesh (FSDP2)."""
        if self.device_mesh is not None and not isinstance(self.head, FSDPModule):
            fully_shard(self.head, mesh=self.device_mesh["data_parallel"])

    def forward_steps(self, batch: Batch) -> tuple[Tensor, StepCounts]:
        head, config = self.head, self.loss_config
        given = head.ops.draft_teacher(batch.teacher_hidden.to(self.target_rows.dtype), self.target_rows)
        renormalised = config.teacher is TeacherMass.renormalised
        valid, at, trained = step_rows(batch, head.t2d, config)
        count, parts = self._whole(batch, trained)
        decay = config.step_decay ** torch.arange(config.unroll_steps, device=at.device)
        out = head.ops.distill_loss(
            head(batch, config.unroll_steps),
            head.lm_head.weight,
            given.logits,
            given.best.lse if renormalised else batch.teacher_lse,
            given.best.top,
            trained * (parts * decay / count.clamp(min=1))[:, None],
            batch.steps_left,
            Objective(config.kind.value, config.kl_scale, config.kl_decay),
        )
        hit = valid & (head.target_ids(out.argmax) == batch.teacher_top[at])
        counts = StepCounts(config.unroll_steps)
        counts.add(valid, hit, out.acceptance, out.loss, trained)
        return out.total, counts

    def _whole(self, batch: Batch, trained: Tensor) -> tuple[Tensor, int]:
        """(rows trained in the whole optimiser step [steps], in how many means of Lightning the loss will stand)."""
        if batch.whole is None:
            return trained.sum(-1), 1
        count, world = batch.whole, 1
        if dist.is_initialized():
            world = dist.get_world_size()
            dist.all_reduce(count := count.clone())
        return count, world * self.trainer.accumulate_grad_batches

    def _noisy(self, batch: Batch, index: int) -> Batch:
        """With noise on the aux states: each step's own, whatever went before it, so that a resume draws the same."""
        if not self.noise:
            return batch
        part = index % self.trainer.accumulate_grad_batches
        drawn = np.random.SeedSequence([self.seed, self.global_step, part, self.global_rank]).generate_state(1)
        generator = torch.Generator(batch.aux.device).manual_seed(int(drawn[0]))
        states = batch.aux.view(len(batch.aux), self.head.shape.num_aux, -1)
        size = states.float().square().mean(-1, keepdim=True).sqrt() * self.noise
        noise = torch.empty_like(states).uniform_(-1, 1, generator=generator) * size
        return replace(batch, aux=(states + noise.to(states.dtype)).view_as(batch.aux))

    def training_step(self, batch: Batch, index: int) -> Tensor:
        loss, counts = self.forward_steps(self._noisy(batch, index))
        parts = self.trainer.accumulate_grad_batches
        self._part_losses.append(loss.detach() / parts)
        self._part_counts.merge(counts)
        if (index + 1) % parts == 0:
            self.log("train/loss", torch.stack(self._part_losses).sum(), batch_size=1, prog_bar=True, sync_dist=True)
            if (self.global_step + 1) % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
                summary = self._part_counts.gathered().summary()
                self.log_dict({f"train/{k}": v for k, v in summary.items()}, batch_size=1)
            self._part_losses, self._part_counts = [], StepCounts(self.loss_config.unroll_steps)
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips by norm. A gradient that is not finite is left out: the weights stay as they are, the step counts.

        The norm is the one number of a step that is waited for: by now the GPU has the whole backward to do.
        """
        parameters = [p for p in self.head.parameters() if p.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(parameters, gradient_clip_val or math.inf)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if torch.isfinite(norm):
            self.log("train/grad_norm", norm, batch_size=1)
            return
        for p in parameters:
            p.grad = None
        self.skipped.append(self.global_step)
        if self.skipped[-MOST_SKIPPED:] == list(range(self.global_step + 1 - MOST_SKIPPED, self.global_step + 1)):
            raise LabError(
                f"training: the gradients of the last {MOST_SKIPPED} steps, up to step {self.global_step}, are not "
                "finite. Lower optim.optimizer.lr; the last checkpoint is kept."
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["skipped"] = self.skipped

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped = checkpoint.get("skipped", [])

    def validation_step(self, batch: Batch, _: int) -> None:
        self.held_out.merge(self.forward_steps(batch)[1])

    def on_validation_epoch_end(self) -> None:
        summary = self.held_out.summary()
        self.log_dict({f"held_out/{k}": v for k, v in summary.items()}, batch_size=1)
        self.held_out = StepCounts(self.loss_config.unroll_steps)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        optimizer = build_optimizer(self.optim_config.optimizer, [p for p in self.head.parameters() if p.requires_grad])
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self._lr_factor)
        every_step: Any = {"scheduler": scheduler, "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": every_step}

    def _lr_factor(self, step: int) -> float:
        """Linear warm-up, then a cosine down to final_lr_fraction."""
        o = self.optim_config
        warmup = max(1, round(o.warmup_fraction * self.total_steps))
        if step < warmup:
            return (step + 1) / warmup
        done = min(1.0, (step - warmup) / max(1, self.total_steps - warmup))
        return o.final_lr_fraction + (1 - o.final_lr_fraction) * 0.5 * (1 + math.cos(math.pi * done))
