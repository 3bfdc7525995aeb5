"""Rotary position embedding with the Triton kernel behind autograd; same signature as the reference."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from eagle_lab.ops.rope.kernel import rope_kernel


class Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x.contiguous(), cos, sin, inverse=False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grads[0].contiguous(), cos, sin, inverse=True), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, inverse: bool) -> Tensor:
    rows, heads, dim = x.shape
    out = torch.empty_like(x)
    if rows:
        rope_kernel[rows,](
            *(x, cos, sin, out), HEADS=heads, HALF=dim // 2, INVERSE=inverse,
            BLOCK_HEADS=triton.next_power_of_2(heads), BLOCK_HALF=triton.next_power_of_2(dim // 2), num_warps=4,
        )  # fmt: skip
    return out


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [N, heads, D] rotated by cos, sin [N, D] (each frequency twice: first half, second half)."""
    out: Tensor = Rope.apply(x, cos.contiguous(), sin.contiguous())
    return out
