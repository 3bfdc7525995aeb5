"""RMSNorm in Triton, one program per row forward and one per few rows backward.

forward   y_j = x_j * r * w_j,            r = 1 / sqrt(mean(x^2) + eps)
backward  dx_j = r * (g_j w_j - x_j r^2 mean_k(g_k w_k x_k)),   dw_j = sum_rows g_j x_j r
With ADD x is the sum of two inputs, which is stored too, and its own gradient is added to dx.
Saved: x and r (fp32, one scalar per row). Loads are cast to fp32 first and stores cast back, which also is what makes
the kernel right in triton's interpreter (it multiplies bf16 as raw integers).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def norm_kernel(
    x_ptr, residual_ptr, w_ptr, y_ptr, sum_ptr, r_ptr, columns, y_stride, eps,
    ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(residual_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        rounded = x.to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + row * columns + at, rounded, mask=inside)
        x = rounded.to(tl.float32)  # what the backward reads
    r = 1.0 / tl.sqrt(tl.sum(x * x, 0) / columns + tl.cast(eps, tl.float32))
    tl.store(r_ptr + row, r)
    tl.store(y_ptr + row * y_stride + at, (x * r * w).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def norm_gradient_kernel(
    g_ptr, g_sum_ptr, x_ptr, w_ptr, r_ptr, dx_ptr, dw_ptr, rows, columns, g_stride,
    ADD: tl.constexpr, NEED_DX: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program walks ROWS rows and leaves its partial dw in its own line of dw [programs, columns] fp32."""
    program = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, ROWS):
        row = program * ROWS + i
        # one comparison: the interpreter refuses masks made with `&` of a block and a scalar
        valid = at < tl.where(row < rows, columns, 0)
        g = tl.load(g_ptr + row * g_stride + at, mask=valid, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * columns + at, mask=valid, other=0.0).to(tl.float32)
        r = tl.load(r_ptr + tl.where(row < rows, row, 0))
        dw += g * x * r
        if NEED_DX:
            gw = g * w
            shared = tl.sum(gw * x, 0) / columns
            dx = r * (gw - x * r * r * shared)
            if ADD:
                dx += tl.load(g_sum_ptr + row * columns + at, mask=valid, other=0.0).to(tl.float32)
            tl.store(dx_ptr + row * columns + at, dx.to(dx_ptr.dtype.element_ty), mask=valid)
    tl.store(dw_ptr + program * columns + at, dw, mask=inside)
