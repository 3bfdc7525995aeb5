"""SwiGLU with the Triton kernels behind autograd; same signature as the reference."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from eagle_lab.ops.swiglu.kernel import swiglu_gradient_kernel, swiglu_kernel

BLOCK = 2048


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        y = torch.empty_like(gate)
        if y.numel():
            swiglu_kernel[triton.cdiv(y.numel(), BLOCK),](gate, up, y, y.numel(), BLOCK=BLOCK, num_warps=8)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        d_gate, d_up = torch.empty_like(gate), torch.empty_like(up)
        if size := gate.numel():
            dy = grads[0].contiguous()
            grid = (triton.cdiv(size, BLOCK),)
            swiglu_gradient_kernel[grid](dy, gate, up, d_gate, d_up, size, BLOCK=BLOCK, num_warps=8)
        return d_gate, d_up


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up [..., M] -> [..., M]."""
    out: Tensor = SwiGLU.apply(gate, up)
    return out
