"""Whether two tokens stand so close that rounding may choose either."""

from __future__ import annotations

import math

import torch
from torch import Tensor

MOST_ULPS = 2.0
"""A batch of another shape sums in another order, which moves a bfloat16 logit by about a unit in the last place."""
MARGIN = 2.0
"""Over the furthest stray of plain decoding: that of as many other answers may be larger."""
MOST_PLAIN_ULPS = 16.0
"""Strays further than that are no rounding: a server of other weights answers hundreds of units down."""
SIGNIFICANT_BITS = {"bfloat16": 8, "float16": 11, "float32": 24}


def gap_ulps(logits: Tensor, token: int | None, dtype: str) -> float:
    """How far a token lies below the best logit, in units of the last place of the served `dtype`.

    logits [V] in float32, so that the judge adds no rounding of its own. An answer that ended early (None) is no tie:
    infinity.
    """
    return math.inf if token is None else stray_ulps(logits[None], [token], dtype)


def stray_ulps(logits: Tensor, tokens: list[int], dtype: str) -> float:
    """The furthest that one of n tokens lies below the best logit where it was chosen; 0.0 without tokens.

    logits [n, V] in float32. The unit is that of the best logit, or of the logits' spread where the best is near zero.
    A greedy server without speculation shows its own rounding so. SmolLM2-135M-Instruct in bfloat16 on an H200: 67 to
    88 of 3,400 tokens were not float32's best, the furthest by 3.7 units (5.1 with 32 requests in flight).
    """
    if not tokens:
        return 0.0
    best = logits.max(-1).values
    chosen = logits.gather(-1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0]
    exponent = torch.frexp(torch.maximum(best.abs(), logits.std(-1))).exponent  # value < 2 ** exponent
    unit = torch.ldexp(torch.ones_like(best), exponent - SIGNIFICANT_BITS[dtype])
    return float(((best - chosen) / unit).max())
