"""The frozen target's norms and MLPs run by the head's ops: transformers spreads each over several kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from eagle_lab.ops.dispatch import OpSet

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3", "DeepseekV3")
NORMS = {f"{family}RMSNorm" for family in FAMILIES}
"""x / sqrt(mean(x^2) + eps) * weight; Gemma's, for one, is another."""
MLPS = {f"{family}MLP" for family in FAMILIES}
"""down(act(gate(x)) * up(x))."""


def fuse(decoder: nn.Module, ops: OpSet) -> None:
    """Changes the decoder in place; modules of other classes, and MLPs whose activation is not SiLU, stay."""

    def norm(module: Any, hidden_states: Tensor) -> Tensor:
        return ops.rms_norm(hidden_states, module.weight, module.variance_epsilon)

    def mlp(module: Any, x: Tensor) -> Tensor:
        out: Tensor = module.down_proj(ops.swiglu(module.gate_proj(x), module.up_proj(x)))
        return out

    module: Any
    for module in decoder.modules():
        if type(module).__name__ in NORMS:
            module.forward = partial(norm, module)
        elif type(module).__name__ in MLPS and module.config.hidden_act == "silu":
            module.forward = partial(mlp, module)
