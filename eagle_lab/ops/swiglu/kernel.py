"""SwiGLU in Triton: y = g s u with s = sigmoid(g); dg = dy u s (1 + g (1 - s)), du = dy g s."""

from __future__ import annotations

import triton
import triton.language as tl

from eagle_lab.ops.flat import load, store


@triton.jit(do_not_specialize=["size"])
def swiglu_kernel(gate_ptr, up_ptr, y_ptr, size, BLOCK: tl.constexpr):
    gate, up = load(gate_ptr, size, BLOCK), load(up_ptr, size, BLOCK)
    store(y_ptr, gate * tl.sigmoid(gate) * up, size, BLOCK)


@triton.jit(do_not_specialize=["size"])
def swiglu_gradient_kernel(dy_ptr, gate_ptr, up_ptr, dgate_ptr, dup_ptr, size, BLOCK: tl.constexpr):
    dy, gate, up = load(dy_ptr, size, BLOCK), load(gate_ptr, size, BLOCK), load(up_ptr, size, BLOCK)
    s = tl.sigmoid(gate)
    store(dgate_ptr, dy * up * s * (1.0 + gate * (1.0 - s)), size, BLOCK)
    store(dup_ptr, dy * gate * s, size, BLOCK)
