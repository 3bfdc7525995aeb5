"""Log-sum-exp and argmax of a row of logits in one pass (online softmax, arXiv 1805.02867)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def best_kernel(z_ptr, lse_ptr, top_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    highest = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    best = tl.full((), 0, tl.int32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        z = tl.load(z_ptr + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        top = tl.max(z, 0)
        best = tl.where(top > highest, start + tl.argmax(tl.where(z == z, z, float("-inf")), 0), best)
        higher = tl.maximum(highest, top)
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(z - higher), 0)
        highest = higher
    tl.store(lse_ptr + row, highest + tl.log(total))
    tl.store(top_ptr + row, best.to(tl.int64))
