"""SwiGLU in Triton: y = g s u with s = sigmoid(g); dg = dy u s (1 + g (1 - s)), du = dy g s."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["size"])
def forward_kernel(gate_ptr, up_ptr, y_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    gate = tl.load(gate_ptr + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, (gate * tl.sigmoid(gate) * up).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["size"])
def backward_kernel(dy_ptr, gate_ptr, up_ptr, dgate_ptr, dup_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + at, mask=inside, other=0.0).to(tl.float32)
    s = tl.sigmoid(gate)
    dgate = dy * up * s * (1.0 + gate * (1.0 - s))
    tl.store(dgate_ptr + at, dgate.to(dgate_ptr.dtype.element_ty), mask=inside)
    tl.store(dup_ptr + at, (dy * gate * s).to(dup_ptr.dtype.element_ty), mask=inside)
