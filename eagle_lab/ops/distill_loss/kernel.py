"""Loss, argmax, acceptance and gradient of a row of draft logits in one program, which holds the row if it fits.

The gradient takes the logits' place. What a row pays and the A, B, C, D of its gradient stand in losses.py; saved for
the backward is nothing, since `function` multiplies the gradient out at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from eagle_lab.ops.distill_loss.losses import KINDS, LEAST_ACCEPTANCE
from eagle_lab.ops.flat import load, store
from eagle_lab.ops.online import joined, scanned

SOFT_CE, KL, LK_ALPHA, LK_LAMBDA, HARD = (tl.constexpr(i) for i in range(len(KINDS)))
LEAST = tl.constexpr(LEAST_ACCEPTANCE)


@triton.jit
def _tile(z_ptr, t_ptr, lse, start, columns, BLOCK: tl.constexpr):
    """Student logits z (-inf past the end), log p (-inf) and p (0), all fp32."""
    at = start + tl.arange(0, BLOCK)
    inside = at < columns
    z = tl.load(z_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
    log_p = tl.load(t_ptr + at, mask=inside, other=float("-inf")).to(tl.float32) - lse
    return at, inside, z, log_p, tl.exp(log_p)


@triton.jit
def _row(
    z_ptr, t_ptr, lse, label, weight, columns, kl_scale, kl_decay,
    KIND: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """(loss, argmax, acceptance) of one row; with GRADIENT z becomes weight * dz."""
    # sums lane by lane, which meet at the row's end
    highest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    cross, entropy, mass = total, total, total
    best = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, columns, BLOCK):
        at, inside, z, log_p, p = _tile(z_ptr, t_ptr, lse, start, columns, BLOCK)
        highest, total, best = scanned(highest, total, best, z, at)
        if KIND != HARD:
            mass += p
            cross -= tl.where(inside, p * z, 0.0)
        if KIND == KL or KIND == LK_LAMBDA:
            entropy -= tl.where(p > 0, p * log_p, 0.0)
    log_total, best = joined(highest, total, best)
    mass, entropy = tl.sum(mass, 0), tl.sum(entropy, 0)
    cross = tl.sum(cross, 0) + mass * log_total
    overlap = tl.zeros((BLOCK,), tl.float32)
    below, picked = overlap, overlap
    for start in range(0, columns, BLOCK):
        at, inside, z, log_p, p = _tile(z_ptr, t_ptr, lse, start, columns, BLOCK)
        q = tl.exp(z - log_total)
        overlap += tl.minimum(p, q, propagate_nan=tl.PropagateNan.ALL)
        if KIND == HARD:
            picked += tl.where(at == label, z, 0.0)
        elif KIND == LK_ALPHA or KIND == LK_LAMBDA:
            below += tl.where(q < p, q, 0.0)
        if GRADIENT and KIND == HARD:
            dz = weight * (q - tl.where(at == label, 1.0, 0.0))
            tl.store(z_ptr + at, dz.to(z_ptr.dtype.element_ty), mask=inside)
        elif GRADIENT and (KIND == SOFT_CE or KIND == KL):
            tl.store(z_ptr + at, (weight * (mass * q - p)).to(z_ptr.dtype.element_ty), mask=inside)
    overlap, below, picked = tl.sum(overlap, 0), tl.sum(below, 0), tl.sum(picked, 0)
    safe = tl.maximum(overlap, LEAST, propagate_nan=tl.PropagateNan.ALL)
    w = tl.cast(kl_scale, tl.float32) * tl.exp(-tl.cast(kl_decay, tl.float32) * overlap)
    if KIND == SOFT_CE:
        loss = cross
    elif KIND == KL:
        loss = cross - entropy
    elif KIND == LK_ALPHA:
        loss, a, b, c = -tl.log(safe), below / safe, 0.0, -1.0 / safe
    elif KIND == LK_LAMBDA:
        loss = w * (cross - entropy) + (1.0 - w) * (1.0 - overlap)
        a, b, c = w * mass + (1.0 - w) * below, w, w - 1.0
    else:
        loss = log_total - picked
    if GRADIENT and (KIND == LK_ALPHA or KIND == LK_LAMBDA):  # these need the acceptance first
        for start in range(0, columns, BLOCK):
            at, inside, z, log_p, p = _tile(z_ptr, t_ptr, lse, start, columns, BLOCK)
            q = tl.exp(z - log_total)
            dz = a * q - b * p + tl.where(q < p, c * q, 0.0)
            tl.store(z_ptr + at, (weight * dz).to(z_ptr.dtype.element_ty), mask=inside)
    return loss, best, overlap


@triton.jit(do_not_specialize=["step", "first_row"])
def loss_kernel(
    z_ptr, t_ptr, lse_ptr, label_ptr, weight_ptr, left_ptr, loss_ptr, argmax_ptr, overlap_ptr,
    step, first_row, columns, kl_scale, kl_decay,
    KIND: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Row first_row + program of step `step`; z [rows of this chunk, columns], the other arrays are whole."""
    chunk_row = tl.program_id(0).to(tl.int64)
    row = chunk_row + first_row
    z_ptr += chunk_row * columns
    if tl.load(left_ptr + row) > step:
        teacher = row + step
        loss, best, overlap = _row(
            z_ptr, t_ptr + teacher * columns, tl.load(lse_ptr + teacher), tl.load(label_ptr + teacher),
            tl.load(weight_ptr + row), columns, kl_scale, kl_decay, KIND, GRADIENT, BLOCK,
        )  # fmt: skip
        tl.store(loss_ptr + row, loss)
        tl.store(argmax_ptr + row, best.to(tl.int64))
        tl.store(overlap_ptr + row, overlap)
    else:  # past the end of its document
        tl.store(loss_ptr + row, 0.0)
        tl.store(argmax_ptr + row, tl.full((), 0, tl.int64))
        tl.store(overlap_ptr + row, 0.0)
        if GRADIENT:
            for start in range(0, columns, BLOCK):
                at = start + tl.arange(0, BLOCK)
                nothing = tl.zeros((BLOCK,), tl.float32).to(z_ptr.dtype.element_ty)
                tl.store(z_ptr + at, nothing, mask=at < columns)


@triton.jit(do_not_specialize=["size"])
def scale_kernel(x_ptr, by_ptr, size, BLOCK: tl.constexpr):
    """x *= by, a scalar on the device; nothing is read where it is 1, as it is when the loss itself is the root."""
    by = tl.load(by_ptr).to(tl.float32)
    if by != 1.0:
        store(x_ptr, load(x_ptr, size, BLOCK) * by, size, BLOCK)
