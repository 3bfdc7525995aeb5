"""Online log-sum-exp (arXiv 1805.02867) that also keeps where the largest value was: one tile of a row more."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scanned(highest, total, best, z, start):
    """(maximum, sum of exp(z - maximum), index of the first maximum) with the tile z, whose first column is `start`.

    z is -inf past the row's end. A NaN makes the sum NaN, and the index stays a legal one.
    """
    top = tl.max(z, 0)
    best = tl.where(top > highest, start + tl.argmax(tl.where(z == z, z, float("-inf")), 0), best)
    higher = tl.maximum(highest, top)
    return higher, total * tl.exp(highest - higher) + tl.sum(tl.exp(z - higher), 0), best
