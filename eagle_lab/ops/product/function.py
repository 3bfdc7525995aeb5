"""A weight that every unroll step multiplies by, with one gradient buffer for all steps.

PyTorch makes a gradient per step and adds them up: a Llama-3.1-8B head's 6 additions per weight take 2.1 of the 67 ms
of a training step of 2,048 tokens on an H200. Here each step's product adds to the buffer as it is written, in the
weight's own type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from eagle_lab.ops.product.reference import Product


def add_product(into: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """into [out, in] += a.T @ b for a [N, out], b [N, in], or = if it is the first; rounded to `into`'s type only."""
    beta = 0 if first else 1
    if into.dtype == a.dtype:
        into.addmm_(a.t(), b, beta=beta)
    elif into.is_cuda:
        torch.addmm(into, a.t(), b, out_dtype=into.dtype, beta=beta, out=into)
    else:
        into.addmm_(a.t().to(into.dtype), b.to(into.dtype), beta=beta)


class _Buffer:
    """A weight's gradient, as far as steps have given theirs."""

    def __init__(self) -> None:
        self.gradient: Tensor | None = None


class _Weight(torch.autograd.Function):
    """The weight, once per pass: its backward runs after those of all products with it."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, buffer: _Buffer) -> Tensor:
        ctx.buffer = buffer
        ctx.set_materialize_grads(False)
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, None]:
        gradient, ctx.buffer.gradient = ctx.buffer.gradient, None
        return gradient, None


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        cast: Tensor,
        buffer: _Buffer,
        again: Callable[..., Tensor] | None,
        *sources: Tensor,
    ) -> Tensor:
        ctx.buffer, ctx.again, ctx.dtype = buffer, again, weight.dtype
        ctx.save_for_backward(cast, *(sources if again else (x,)))
        return x @ cast.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cast, *kept = ctx.saved_tensors
        g = grads[0].contiguous()
        if ctx.needs_input_grad[1]:
            x = (ctx.again(*kept) if ctx.again else kept[0]).to(g.dtype)
            buffer, first = ctx.buffer, ctx.buffer.gradient is None
            if first:
                buffer.gradient = torch.empty(cast.shape, dtype=ctx.dtype, device=cast.device)
            add_product(buffer.gradient, g, x, first)
        nothing = (None,) * (len(ctx.needs_input_grad) - 1)
        return (g @ cast if ctx.needs_input_grad[0] else None), *nothing


def product(weight: Tensor) -> Product:
    """As the reference. One backward per pass, through all of it: the buffer is handed out with the weight's gradient.

    A backward to x alone that keeps the graph would leave its share in the buffer.
    """
    buffer = _Buffer()
    alias = _Weight.apply(weight, buffer)
    casts: dict[torch.dtype, Tensor] = {}

    def times(x: Tensor, again: Callable[..., Tensor] | None = None, *sources: Tensor) -> Tensor:
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        if dtype not in casts:  # once per pass, not per step
            casts[dtype] = weight.detach().to(dtype)
        out: Tensor = _Times.apply(x.to(dtype), alias, casts[dtype], buffer, again, *(s.detach() for s in sources))
        return out

    return times
