"""Are there biases that the engine drops?"""

from __future__ import annotations

from typing import Any

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "biases"
CATCHES = (
    "Biases of q, k, v or the MLP, which SGLang drops; attention_bias or bias without the weights that it makes. vLLM "
    "reads those of attention_bias and mlp_bias, and drops fc's."
)
REPORTS = ("SpecForge#292",)
NEEDS = ("head",)
LEADS_TO = ("tensors",)


def look(s: Subject) -> Finding:
    head, c = s.given, s.given.config
    found = {n for n in head.headers if n.endswith(".bias")}
    read = made(c, s.engine)
    if dropped := sorted(found - read):
        more = f" and {len(dropped) - 3} more" if len(dropped) > 3 else ""
        other = (
            made(c | {"attention_bias": True, "mlp_bias": True}, Engine.vllm) if s.engine is Engine.sglang else set()
        )
        by_vllm = found <= other
        fix = "vLLM reads them, with attention_bias and mlp_bias true: serve it there, or " if by_vllm else ""
        return fail(", ".join(dropped[:3]) + more, "none: they are not read", f"{fix}train without biases")
    if noise := sorted(read - found):
        flags = " and ".join(n for n in ("attention_bias", "bias", "mlp_bias") if c.get(n))
        fix = f"noise is served: say {flags}=false, or put the weights there"
        return fail(f"{flags} makes {noise[0]}, which is not there", "both or none", fix)
    return ok(", ".join(sorted(found)) or "none")


def made(c: dict[str, Any], engine: Engine) -> set[str]:
    """The biases that an engine's class has for these flags."""
    # sglang 0.5.20, srt/models/llama.py: attention_bias and bias give o_proj one; llama_eagle3.py makes qkv without
    # vllm 0.33.0, model_executor/models/llama_eagle3.py: qkv by attention_bias; fc without; llama.py: the MLP's
    layer = {"self_attn.o_proj"} if c.get("bias") or c.get("attention_bias") else set()
    if engine is Engine.vllm:
        layer |= {f"self_attn.{p}_proj" for p in "qkv"} if c.get("attention_bias") else set()
        layer |= {f"mlp.{p}_proj" for p in ("gate", "up", "down")} if c.get("mlp_bias") else set()
    fc = {"fc.bias"} if c.get("bias") and engine is Engine.sglang else set()
    return fc | {f"layers.0.{name}.bias" for name in layer}
