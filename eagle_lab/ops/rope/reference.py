"""Rotary position embedding in the half-split (NeoX) layout that Llama checkpoints use. Source: arXiv 2104.09864."""

from __future__ import annotations

import torch
from torch import Tensor


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [N, heads, D] rotated by cos, sin [N, D] (each frequency twice: first half, second half)."""
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat([-second, first], dim=-1)
    return x * cos[:, None] + rotated * sin[:, None]
