"""Are there biases that SGLang drops?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "biases"
CATCHES = "Biases of q, k, v or the MLP, which SGLang drops; attention_bias or bias without the weights that it makes."
REPORTS = ("SpecForge#292",)
NEEDS = ("head",)
LEADS_TO = ("tensors",)


def look(s: Subject) -> Finding:
    head, c = s.given, s.given.config
    found = {n for n in head.headers if n.endswith(".bias")}
    # sglang 0.5.20, srt/models/llama.py: attention_bias and bias give o_proj one; llama_eagle3.py makes qkv without
    read = {"fc.bias"} if c.get("bias") else set()
    read |= {"layers.0.self_attn.o_proj.bias"} if c.get("bias") or c.get("attention_bias") else set()
    if dropped := sorted(found - read):
        return fail(", ".join(dropped[:3]), "none", "train without biases (attention_bias=false): these are not read")
    if noise := sorted(read - found):
        return fail(f"bias or attention_bias is true, no {noise[0]}", "both or none", "noise is served: say false")
    return ok(", ".join(sorted(found)) or "none")
