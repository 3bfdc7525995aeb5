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

from eagle_lab.ops.distill_loss.kernel import loss_kernel, scale_kernel
from eagle_lab.ops.distill_loss.losses import KINDS, Objective
from eagle_lab.ops.distill_loss.reference import Distilled
from eagle_lab.ops.product.function import add_product

CHUNK_BYTES = 140 << 20
"""Of logits: 2,240 rows of 32,000 in bf16. Smaller ones fill an H200 less well, larger ones cost memory."""
BLOCK, WARPS = 2048, 4
"""Columns at once: the fastest of 11 pairs on an H200, 32,768 and 32 (a row at once) took 1.5 times as long."""
SCALED = 4096
"""Elements of a gradient per program of scale_kernel."""


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
        d_weight = (torch.empty_like if rows else torch.zeros_like)(weight) if need_weight else None
        d_hiddens = [torch.empty_like(h) for h in hiddens] if need_hidden else []
        size = min(rows, max(1, CHUNK_BYTES // (vocab * w.element_size())))
        chunk = torch.empty(size, vocab, dtype=w.dtype, device=w.device)
        block = min(BLOCK, triton.next_power_of_2(vocab))
        for step, hidden in enumerate(hiddens):
            for begin in range(0, rows, size or 1):
                h = hidden[begin : begin + size]
                z = torch.mm(h, w.t(), out=chunk[: len(h)])
                loss_kernel[len(h),](
                    *(z, *teacher, row_weight[step], steps_left, loss[step], argmax[step], overlap[step]),
                    *(step, begin, vocab, objective.kl_scale, objective.kl_decay),
                    KIND=KINDS.index(objective.kind),
                    GRADIENT=need_weight or need_hidden,
                    BLOCK=block,
                    num_warps=WARPS,
                )
                if need_hidden:
                    torch.mm(z, w, out=d_hiddens[step][begin : begin + size])
                if d_weight is not None:
                    add_product(d_weight, z, h, first=step == begin == 0)
        ctx.gradients, ctx.steps = (d_weight, d_hiddens), len(hiddens)
        ctx.mark_non_differentiable(loss, argmax, overlap)
        return (row_weight * loss).sum(), loss, argmax, overlap

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("distill_loss: its backward has run already, and its gradients were handed out")
        d_weight, d_hiddens = ctx.gradients
        ctx.gradients = None
        for gradient in [*d_hiddens, *([] if d_weight is None else [d_weight])]:
            if size := gradient.numel():
                scale_kernel[triton.cdiv(size, SCALED),](gradient, grads[0], size, BLOCK=SCALED, num_warps=8)
        return d_weight, None, None, None, None, *(d_hiddens or [None] * ctx.steps)


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
    teacher = (teacher_logits.contiguous(), teacher_lse.contiguous(), label.contiguous())
    out = DistillLoss.apply(weight, teacher, row_weight.contiguous(), steps_left.contiguous(), objective, *hiddens)
    return Distilled(*out)
