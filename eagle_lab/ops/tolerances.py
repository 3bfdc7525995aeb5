"""How far an op may be from its fp64 reference, and why. One table for the tests, the GPU tests and the benchmark.

Two numbers per dtype and kind: per element |found - wanted| <= element * (|wanted| + largest |wanted|), which a wrong
lane cannot pass, and as a whole RMS(found - wanted) <= whole * RMS(wanted), which a small bias cannot.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Tolerance(NamedTuple):
    element: float
    whole: float
    reason: str


TOLERANCES: dict[tuple[torch.dtype, str], Tolerance] = {
    (torch.float32, "value"): Tolerance(2e-5, 5e-6, "sums of up to 32,000 terms in fp32, in another order"),
    (torch.float32, "gradient"): Tolerance(1e-4, 2e-5, "two such sums, one inside the other"),
    (torch.bfloat16, "value"): Tolerance(
        2e-2, 1e-2, "inputs of a product are rounded to 2^-9; triton's interpreter truncates to 2^-8 at stores"
    ),
    (torch.bfloat16, "gradient"): Tolerance(
        4e-2, 2e-2, "softmax weights and their gradient are rounded once more before they are multiplied"
    ),
}


def check_close(found: Tensor, wanted: Tensor, kind: str, what: str = "") -> None:
    """AssertionError naming the worst element when `found` is not `wanted` [fp64] within the table's tolerance."""
    assert found.shape == wanted.shape, f"{what}: shape {tuple(found.shape)}, {tuple(wanted.shape)} wanted"
    if not wanted.numel():
        return
    tolerance = TOLERANCES[found.dtype, kind]
    a, b = found.detach().double().flatten(), wanted.detach().double().flatten()
    assert a.isfinite().all(), f"{what}: {int((~a.isfinite()).sum())} values are not finite"
    error, scale = (a - b).abs(), b.abs().max()
    worst = int((error - tolerance.element * b.abs()).argmax())
    assert error[worst] <= tolerance.element * (b[worst].abs() + scale), (
        f"{what}: {a[worst]:.6g} found, {b[worst]:.6g} wanted at {worst} of {b.numel()}; largest {scale:.3g}; "
        f"{tolerance.element:g} allowed: {tolerance.reason}"
    )
    rms, whole = error.square().mean().sqrt(), b.square().mean().sqrt()
    assert rms <= tolerance.whole * whole, (
        f"{what}: RMS of the error {rms:.3g} is {rms / whole:.2g} of that of the values; {tolerance.whole:g} allowed: "
        f"{tolerance.reason}"
    )
