"""Which implementation each op runs with. The head calls ops only through an `OpSet`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch

from eagle_lab.ops.distill_loss import reference as distill_loss
from eagle_lab.ops.rms_norm import reference as rms_norm
from eagle_lab.ops.rope import reference as rope
from eagle_lab.ops.swiglu import reference as swiglu
from eagle_lab.ops.unroll_attention import reference as unroll_attention


@dataclass(frozen=True)
class OpSet:
    rms_norm: Callable[..., torch.Tensor] = rms_norm.rms_norm
    rope: Callable[..., torch.Tensor] = rope.rope
    swiglu: Callable[..., torch.Tensor] = swiglu.swiglu
    unroll_attention: Callable[..., torch.Tensor] = unroll_attention.unroll_attention
    distill_loss: Callable[..., Any] = distill_loss.distill_loss

    def paths(self) -> dict[str, str]:
        """Op name -> module of the function that runs, for the run's manifest."""
        return {f.name: getattr(self, f.name).__module__ for f in fields(self)}


def _triton() -> dict[str, Callable[..., Any]]:
    """The ops that have a Triton kernel. Imported on demand: triton decides at decoration whether it interprets."""
    from eagle_lab.ops.rms_norm import function as rms_norm_triton

    return {"rms_norm": rms_norm_triton.rms_norm}


def op_set(impl: str, device: torch.device) -> OpSet:
    """impl: reference, triton (every op that has a kernel; also in triton's interpreter) or auto (triton on a GPU)."""
    if impl == "triton" or (impl == "auto" and device.type == "cuda"):
        return OpSet(**_triton())
    return OpSet()
