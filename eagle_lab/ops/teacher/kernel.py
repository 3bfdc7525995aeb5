"""Log-sum-exp and argmax of a row of logits in one pass."""

from __future__ import annotations

import triton
import triton.language as tl

from eagle_lab.ops.online import scanned


@triton.jit
def best_kernel(z_ptr, lse_ptr, top_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    highest = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    best = tl.full((), 0, tl.int32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        z = tl.load(z_ptr + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        highest, total, best = scanned(highest, total, best, z, start)
    tl.store(lse_ptr + row, highest + tl.log(total))
    tl.store(top_ptr + row, best.to(tl.int64))
