"""The distillation head with the Triton kernel behind autograd: no more draft logits at once than one chunk.

Of every chunk of rows the three products are made at once: logits, the hidden state's gradient, and the weight's,
which all steps add to one buffer. What is left for the backward is a scalar to multiply by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from eagle_lab.ops.distill_loss.kernel import loss_kernel
from eagle_lab.ops.distill_loss.losses import KINDS, Objective
from eagle_lab.ops.distill_loss.reference import Distilled

CHUNK_BYTES = 140 << 20
"""Of logits: 2,240 rows of 32,000 in bf16. Smaller ones fill an H200 less well, larger ones cost memory."""
BLOCK = 32_768
"""Columns that a program holds at once: a draft vocabulary of 32,000 is then read once."""


class DistillLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        teacher: tuple[Tensor, Tensor, Tensor],
        row_weight: Tensor,
        steps_left: Tensor,
        objective: Objective,
        *hiddens: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows, vocab = teacher[0].shape
        wide = (len(hiddens), rows)
        like = hiddens[0]
        loss, overlap = (torch.empty(wide, dtype=torch.float32, device=like.device) for _ in range(2))
        argmax = torch.empty(wide, dtype=torch.int64, device=like.device)
        w = weight.to(like.dtype)
        need_weight, need_hidden = ctx.needs_input_grad[0], any(ctx.needs_input_grad[5:])
        d_weight = torch.zeros_like(weight) if need_weight else None
        d_hiddens = [torch.empty_like(h) for h in hiddens] if need_hidden else []
        size = max(1, CHUNK_BYTES // (vocab * w.element_size()))
        block = min(BLOCK, triton.next_power_of_2(vocab))
        for step, hidden in enumerate(hiddens):
            for begin in range(0, rows, size):
                h = hidden[begin : begin + size]
                z = h @ w.t()
                loss_kernel[len(h),](
                    *(z, *teacher, row_weight[step], steps_left, loss[step], argmax[step], overlap[step]),
                    *(step, begin, vocab, objective.kl_scale, objective.kl_decay),
                    KIND=KINDS.index(objective.kind),
                    GRADIENT=need_weight or need_hidden,
                    BLOCK=block,
                    num_warps=32 if block > 8192 else 8,
                )
                if need_hidden:
                    torch.mm(z, w, out=d_hiddens[step][begin : begin + size])
                if d_weight is not None:
                    _add_product(d_weight, z, h)
        ctx.gradients = (d_weight, d_hiddens)
        ctx.mark_non_differentiable(loss, argmax, overlap)
        return (row_weight * loss).sum(), loss, argmax, overlap

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("distill_loss: its backward has run already, and its gradients were handed out")
        d_weight, d_hiddens = ctx.gradients
        ctx.gradients = None
        for gradient in [*d_hiddens, *([] if d_weight is None else [d_weight])]:
            gradient.mul_(grads[0])
        return d_weight, None, None, None, None, *d_hiddens


def _add_product(into: Tensor, z: Tensor, h: Tensor) -> None:
    """into += z.T @ h, rounded to `into`'s type only."""
    if into.dtype == z.dtype:
        into.addmm_(z.t(), h)
    elif into.is_cuda:
        torch.addmm(into, z.t(), h, out_dtype=into.dtype, out=into)
    else:
        into.addmm_(z.t().to(into.dtype), h.to(into.dtype))


def distill_loss(
    hiddens: Sequence[Tensor],
    weight: Tensor,
    teacher_logits: Tensor,
    teacher_lse: Tensor,
    label: Tensor,
    row_weight: Tensor,
    steps_left: Tensor,
    objective: Objective,
) -> Distilled:
    """As the reference. One backward only: the gradients are made in the forward and scaled in place."""
    teacher = (teacher_logits.contiguous(), teacher_lse, label)
    out = DistillLoss.apply(weight, teacher, row_weight.contiguous(), steps_left, objective, *hiddens)
    return Distilled(*out)
