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
