"""Unroll attention with the Triton kernels behind autograd; same signature as the reference."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from eagle_lab.ops.launch import Blocks, interpreted, precision
from eagle_lab.ops.unroll_attention.kernel import chain_kernel, forward_kernel, key_kernel, query_kernel
from eagle_lab.ops.unroll_attention.layout import Layout


class Tiles(NamedTuple):
    """Of the three kernels that walk over tiles. Measured on an H200 at D 128 in bfloat16, 4,096 tokens."""

    forward: Blocks
    query: Blocks
    key: Blocks


LARGE = Tiles(
    forward=Blocks(rows=64, keys=64, num_warps=4, num_stages=3),
    query=Blocks(rows=128, keys=64, num_warps=8, num_stages=3),
    key=Blocks(rows=64, keys=64, num_warps=4, num_stages=2),
)
LARGE_BYTES = 180_000
"""Of a multiprocessor's shared memory that LARGE takes at D 128 in 2 bytes: an H200 has 227 KB, an RTX 4090 100."""
LARGE_DIM = 128
SMALL = Tiles(*[Blocks(rows=32, keys=32, num_warps=4, num_stages=1)] * 3)
"""float32, wider heads, and GPUs with less shared memory: 64 KB at D 128 in 4 bytes."""
CHAIN = Blocks(rows=32, keys=1, num_warps=4, num_stages=1)


class UnrollAttention(torch.autograd.Function):
    """q [N, heads, D]; k0, v0 [T, kv_heads, D]; kc, vc [i, N, kv_heads, D]; all contiguous."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k0: Tensor, v0: Tensor, kc: Tensor, vc: Tensor, layout: Layout) -> Tensor:
        rows, heads, dim = q.shape
        out = torch.empty_like(q)
        lse = torch.empty(heads, rows, dtype=torch.float32, device=q.device)
        tiles = _tiles(q)
        grid = (triton.cdiv(rows, tiles.forward.rows), heads)
        forward_kernel[grid](
            *(q, k0, v0, kc, vc, layout.row_first, layout.row_token, out, lse),
            *(rows, len(k0), len(kc), dim**-0.5),
            **_shape(q, k0, tiles.forward),
        )
        ctx.save_for_backward(q, k0, v0, kc, vc, out, lse)
        ctx.layout = layout
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k0, v0, kc, vc, out, lse = ctx.saved_tensors
        layout: Layout = ctx.layout
        do = grads[0].contiguous()
        rows, heads, dim = q.shape
        tokens, kv_heads, _ = k0.shape
        scale, tiles = dim**-0.5, _tiles(q)
        dq, dkc, dvc = (torch.empty_like(t) for t in (q, kc, vc))
        dk, dv = (q.new_empty(tokens, heads, dim) for _ in range(2))  # of each head of q; summed per key head below
        delta = torch.empty_like(lse)
        query_kernel[triton.cdiv(rows, tiles.query.rows), heads](
            *(q, k0, v0, kc, vc, layout.row_first, layout.row_token, out, lse, do, delta, dq),
            *(rows, tokens, len(kc), scale),
            **_shape(q, k0, tiles.query),
        )
        key_kernel[triton.cdiv(tokens, tiles.key.keys), heads](
            *(q, k0, v0, layout.row_first, layout.row_token, lse, do, delta, layout.row_begin, layout.row_end, dk, dv),
            *(rows, tokens, scale),
            **_shape(q, k0, tiles.key),
        )
        if len(kc):
            shape = _shape(q, k0, CHAIN)
            del shape["BLOCK_N"], shape["PRECISION"]
            chain_kernel[triton.cdiv(rows, CHAIN.rows), kv_heads](
                *(q, kc, vc, lse, do, delta, dkc, dvc, rows, len(kc), scale), **shape
            )
        dk, dv = (t.view(tokens, kv_heads, -1, dim).sum(2) for t in (dk, dv))
        return dq, dk, dv, dkc, dvc, None


def unroll_attention(q: Tensor, k0: Tensor, v0: Tensor, chain: list[tuple[Tensor, Tensor]], layout: Layout) -> Tensor:
    """Attention output [N, heads, D].

    q [N, heads, D]; k0, v0 [T, kv_heads, D] of step 0; chain: i pairs (k, v), each [N, kv_heads, D], of steps 1..i.
    """
    if not len(q):
        return q.clone()
    nothing = k0.new_empty(0, len(q), *k0.shape[1:])
    kc, vc = (torch.stack(parts) for parts in zip(*chain, strict=True)) if chain else (nothing, nothing)
    assert len(k0) == len(v0) == layout.total, "the backward kernel reads the layout at every token of k0"
    out: Tensor = UnrollAttention.apply(q.contiguous(), k0.contiguous(), v0.contiguous(), kc, vc, layout)
    return out


def _tiles(q: Tensor) -> Tiles:
    return (
        LARGE if q.element_size() == 2 and (not q.is_cuda or _shared_memory(q.get_device()) >= LARGE_BYTES) else SMALL
    )


@cache
def _shared_memory(device: int) -> int:
    """Bytes that one program may take."""
    return int(triton.runtime.driver.active.utils.get_device_properties(device)["max_shared_mem"])


def _shape(q: Tensor, k0: Tensor, blocks: Blocks) -> dict[str, Any]:
    """The kernels' compile-time arguments."""
    _, heads, dim = q.shape
    return {
        "HEADS": heads,
        "GROUP": heads // k0.shape[1],
        "D": dim,
        "BLOCK_D": max(16, triton.next_power_of_2(dim)),  # tl.dot takes no less
        "BLOCK_M": blocks.rows,
        "BLOCK_N": blocks.keys,
        "UPCAST": interpreted(forward_kernel),
        "PRECISION": precision(q.dtype),
        **blocks.launch(),
    }
