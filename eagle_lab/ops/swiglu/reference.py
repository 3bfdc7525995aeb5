"""SwiGLU: silu(gate) * up. Source: arXiv 2002.05202."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up [..., M] -> [..., M]."""
    return F.silu(gate) * up
