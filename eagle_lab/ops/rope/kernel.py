"""Rotary position embedding in Triton, one program per row: all its heads turn by the same angles.

out_1 = x_1 cos - x_2 sin,   out_2 = x_2 cos + x_1 sin   for the halves of every head.
INVERSE turns back: the backward.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rope_kernel(
    x_ptr, cos_ptr, sin_ptr, out_ptr, HEADS: tl.constexpr, HALF: tl.constexpr, INVERSE: tl.constexpr,
    BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, at = tl.arange(0, BLOCK_HEADS), tl.arange(0, BLOCK_HALF)
    inside = (head[:, None] < HEADS) & (at[None, :] < HALF)
    where = row * HEADS * HALF * 2 + head[:, None] * HALF * 2 + at[None, :]
    cos = tl.load(cos_ptr + row * HALF * 2 + at, mask=at < HALF, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + row * HALF * 2 + at, mask=at < HALF, other=0.0).to(tl.float32)[None, :]
    if INVERSE:
        sin = -sin
    first = tl.load(x_ptr + where, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + where + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + where, (first * cos - second * sin).to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(out_ptr + where + HALF, (second * cos + first * sin).to(out_ptr.dtype.element_ty), mask=inside)
