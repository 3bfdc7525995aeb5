"""Whether two tokens stand so close that rounding may choose either."""

from __future__ import annotations

import math

from torch import Tensor

MOST_ULPS = 2.0
"""A batch of another shape sums in another order, which moves a bfloat16 logit by about a unit in the last place."""
SIGNIFICANT_BITS = {"bfloat16": 8, "float16": 11, "float32": 24}


def gap_ulps(logits: Tensor, expected: int | None, found: int | None) -> float:
    """How far the worse of two tokens lies below the best logit, in units of the last place of the logits' dtype.

    logits [V]. An answer that ended early (None) is no tie: infinity.
    """
    if expected is None or found is None:
        return math.inf
    best = float(logits.max())
    worse = float(logits[[expected, found]].min())
    bits = SIGNIFICANT_BITS[str(logits.dtype).removeprefix("torch.")]
    ulp = 2.0 ** (math.floor(math.log2(abs(best))) + 1 - bits) if best else 2.0**-bits
    return (best - worse) / ulp
