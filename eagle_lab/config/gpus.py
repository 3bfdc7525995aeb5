"""What is published of the GPUs that heads are trained on (makers' data sheets)."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    gib: float
    """Memory."""
    tflop_s: float
    """bf16 products on dense tensors, fp32 sums."""
    gb_s: float
    """Memory bandwidth."""


GPUS = {
    "b200": Gpu(178, 2250, 8000),
    "h200": Gpu(140, 989, 4800),
    "h100 nvl": Gpu(93, 835, 3900),
    "h100 pcie": Gpu(79, 756, 2000),
    "h100": Gpu(79, 989, 3350),
    "a100-sxm4-40gb": Gpu(39.5, 312, 1555),
    "a100-pcie-40gb": Gpu(39.5, 312, 1555),
    "a100": Gpu(79, 312, 2039),
    "a40": Gpu(44, 150, 696),
    "l40s": Gpu(44, 362, 864),
    "l4": Gpu(22, 121, 300),
    "rtx 4090": Gpu(23.5, 165, 1008),
    "rtx 3090": Gpu(23.5, 71, 936),
}
"""By a part of the name that the driver gives; the first that fits."""


def gpu_named(name: str) -> Gpu | None:
    """The GPU whose name this is or contains, "NVIDIA H100 80GB HBM3" say; None for one that is not known."""
    return next((gpu for part, gpu in GPUS.items() if re.search(rf"\b{part}\b", name.lower())), None)
