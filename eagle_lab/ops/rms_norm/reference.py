"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight, computed in fp32, returned in x's dtype.

Source: arXiv 1910.07467; Llama's order of casts (the weight multiplies the value already cast back).
"""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., H], weight [H] -> [..., H]."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return scaled.to(x.dtype) * weight


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x, residual [N, H], weight [H] -> (their sum, its norm), both [N, H]."""
    total = x + residual
    return total, rms_norm(total, weight, eps)


def norm_pair(a: Tensor, b: Tensor, weight_a: Tensor, weight_b: Tensor, eps: float) -> Tensor:
    """a, b [N, H] -> [N, 2H]: the norm of a, then the norm of b."""
    return torch.cat([rms_norm(a, weight_a, eps), rms_norm(b, weight_b, eps)], dim=-1)
