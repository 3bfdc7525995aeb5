"""What every kernel's launch needs to know: whether triton interprets, and how it multiplies fp32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton


@dataclass(frozen=True)
class Blocks:
    """Tile sizes of a kernel and the resources of its programs."""

    rows: int
    keys: int
    num_warps: int = 4
    num_stages: int = 2

    def launch(self) -> dict[str, int]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


def interpreted(kernel: Any) -> bool:
    """Whether triton's interpreter runs this kernel (TRITON_INTERPRET was set when it was decorated)."""
    return not isinstance(kernel, triton.runtime.JITFunction)


def precision(dtype: torch.dtype) -> str:
    """tl.dot's input_precision: fp32 is multiplied as PyTorch does it; other types have one way."""
    return "tf32" if dtype != torch.float32 or torch.backends.cuda.matmul.allow_tf32 else "ieee"
