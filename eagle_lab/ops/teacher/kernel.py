"""Log-sum-exp and argmax of a row of logits in one pass."""

from __future__ import annotations

import triton
import triton.language as tl

from eagle_lab.ops.online import joined, scanned


@triton.jit
def best_kernel(z_ptr, lse_ptr, top_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    best = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, columns, BLOCK):
        at = start + lane
        z = tl.load(z_ptr + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        highest, total, best = scanned(highest, total, best, z, at)
    lse, top = joined(highest, total, best)
    tl.store(lse_ptr + row, lse)
    tl.store(top_ptr + row, top.to(tl.int64))
