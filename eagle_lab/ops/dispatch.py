"""Which implementation each op runs with. Head, teacher and loss call ops only through an `OpSet`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch

from eagle_lab.ops.distill_loss import reference as distill_loss
from eagle_lab.ops.product import reference as product
from eagle_lab.ops.rms_norm import reference as norms
from eagle_lab.ops.rope import reference as rope
from eagle_lab.ops.swiglu import reference as swiglu
from eagle_lab.ops.teacher import reference as teacher
from eagle_lab.ops.unroll_attention import reference as unroll_attention


@dataclass(frozen=True)
class OpSet:
    product: Callable[[torch.Tensor], product.Product] = product.product
    rms_norm: Callable[..., torch.Tensor] = norms.rms_norm
    add_rms_norm: Callable[..., tuple[torch.Tensor, torch.Tensor]] = norms.add_rms_norm
    norm_pair: Callable[..., torch.Tensor] = norms.norm_pair
    rope: Callable[..., torch.Tensor] = rope.rope
    swiglu: Callable[..., torch.Tensor] = swiglu.swiglu
    unroll_attention: Callable[..., torch.Tensor] = unroll_attention.unroll_attention
    distill_loss: Callable[..., distill_loss.Distilled] = distill_loss.distill_loss
    best: Callable[..., teacher.Best] = teacher.best
    draft_teacher: Callable[..., teacher.DraftTeacher] = teacher.draft_teacher

    def paths(self) -> dict[str, str]:
        """Op name -> module of the function that runs, for the run's manifest."""
        return {f.name: getattr(self, f.name).__module__ for f in fields(self)}


def _triton() -> dict[str, Any]:
    """The ops' kernels. Imported on demand: triton decides at decoration whether it interprets."""
    from eagle_lab.ops.distill_loss import function as distill_loss
    from eagle_lab.ops.product import function as product
    from eagle_lab.ops.rms_norm import function as rms_norm
    from eagle_lab.ops.rope import function as rope
    from eagle_lab.ops.swiglu import function as swiglu
    from eagle_lab.ops.teacher import function as teacher
    from eagle_lab.ops.unroll_attention import function as unroll_attention

    modules = (distill_loss, product, rms_norm, rope, swiglu, teacher, unroll_attention)
    return {f.name: getattr(m, f.name) for f in fields(OpSet) for m in modules if hasattr(m, f.name)}


def op_set(impl: str, device: torch.device) -> OpSet:
    """impl: reference, triton (also in triton's interpreter) or auto: triton on a GPU, the reference elsewhere."""
    if impl == "triton" or (impl == "auto" and device.type == "cuda"):
        return OpSet(**_triton())
    return OpSet()
