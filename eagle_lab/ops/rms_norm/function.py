"""The three RMSNorms with the Triton kernels behind autograd; same signatures as the reference.

Rows of up to 65,536 columns (one block per row).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from eagle_lab.ops.rms_norm.kernel import norm_gradient_kernel, norm_kernel

ROWS = 16
"""Per backward program: the partial dw has rows/16 lines, and 4096 rows make more programs than an H200 has SMs."""


def _forward(x: Tensor, residual: Tensor | None, weight: Tensor, y: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Writes y [N, H] (rows may be further apart than H); returns (what was normed [N, H], r [N])."""
    rows, columns = x.shape
    normed = x if residual is None else torch.empty_like(x)
    r = torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows:
        block = triton.next_power_of_2(columns)
        norm_kernel[rows,](
            *(x, x if residual is None else residual, weight, y, normed, r, columns, y.stride(0), eps),
            ADD=residual is not None, BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
    return normed, r


def _backward(
    g: Tensor, g_sum: Tensor | None, x: Tensor, weight: Tensor, r: Tensor, need_dx: bool
) -> tuple[Tensor | None, Tensor]:
    """(dx [N, H], dw [H]); g [N, H] may have its rows further apart than H."""
    rows, columns = x.shape
    dx = torch.empty_like(x) if need_dx else None
    programs = triton.cdiv(rows, ROWS)
    dw = torch.empty(programs, columns, dtype=torch.float32, device=x.device)
    if programs:
        block = triton.next_power_of_2(columns)
        norm_gradient_kernel[programs,](
            *(g, g if g_sum is None else g_sum, x, weight, r, x if dx is None else dx, dw, rows, columns, g.stride(0)),
            ADD=g_sum is not None, NEED_DX=need_dx, ROWS=ROWS, BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
    return dx, dw.sum(0).to(weight.dtype)


def _warps(block: int) -> int:
    return min(16, max(1, block // 512))


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        flat = x.contiguous().view(-1, x.shape[-1])
        y = torch.empty_like(flat)
        _, r = _forward(flat, None, weight, y, eps)
        ctx.save_for_backward(flat, weight, r)
        return y.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, weight, r = ctx.saved_tensors
        dx, dw = _backward(grads[0].contiguous().view(x.shape), None, x, weight, r, ctx.needs_input_grad[0])
        return None if dx is None else dx.view(grads[0].shape), dw, None


class AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        total, r = _forward(x.contiguous(), residual.contiguous(), weight, y, eps)
        ctx.save_for_backward(total, weight, r)
        return total, y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor, None]:
        total, weight, r = ctx.saved_tensors
        dx, dw = _backward(grads[1].contiguous(), grads[0].contiguous(), total, weight, r, True)
        return dx, dx, dw, None


class NormPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, weight_a: Tensor, weight_b: Tensor, eps: float) -> Tensor:
        rows, columns = a.shape
        y = a.new_empty(rows, 2 * columns)
        a, b = a.contiguous(), b.contiguous()
        _, r_a = _forward(a, None, weight_a, y[:, :columns], eps)
        _, r_b = _forward(b, None, weight_b, y[:, columns:], eps)
        ctx.save_for_backward(a, b, weight_a, weight_b, r_a, r_b)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor, None]:
        a, b, weight_a, weight_b, r_a, r_b = ctx.saved_tensors
        g, columns = grads[0].contiguous(), a.shape[1]
        d_a, d_weight_a = _backward(g[:, :columns], None, a, weight_a, r_a, ctx.needs_input_grad[0])
        d_b, d_weight_b = _backward(g[:, columns:], None, b, weight_b, r_b, ctx.needs_input_grad[1])
        return d_a, d_b, d_weight_a, d_weight_b, None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., H], weight [H] -> [..., H]."""
    out: Tensor = RMSNorm.apply(x, weight.contiguous(), eps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x, residual [N, H], weight [H] -> (their sum, its norm), both [N, H]."""
    out: tuple[Tensor, Tensor] = AddRMSNorm.apply(x, residual, weight.contiguous(), eps)
    return out


def norm_pair(a: Tensor, b: Tensor, weight_a: Tensor, weight_b: Tensor, eps: float) -> Tensor:
    """a, b [N, H] -> [N, 2H]: the norm of a, then the norm of b."""
    out: Tensor = NormPair.apply(a, b, weight_a.contiguous(), weight_b.contiguous(), eps)
    return out
