"""In which type will the head be served? By vLLM in the target's (config/speculative.py of vllm 0.33.0)."""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "dtype"
CATCHES = (
    "No dtype (float16 is taken), a name that torch does not have, float16 for a target served in bfloat16, integers "
    "where weights should be, a quantization_config beside weights that are not quantised."
)
TYPES = ("float32", "bfloat16", "float16")
REPORTS = ("SpecForge#104", "SpecForge#577")
NEEDS = ("head",)
LEADS_TO = ("values",)


def look(s: Subject) -> Finding:
    c = s.given.config
    found = c.get("dtype") or c.get("torch_dtype")
    strange = [n for n, h in s.given.headers.items() if h.dtype.startswith(("I", "U")) and n not in ("d2t", "t2d")]
    if strange:
        return fail(f"{strange[0]} is {s.given.headers[strange[0]].dtype}", "floating point", "export it unquantised")
    if c.get("quantization_config"):
        if any(h.dtype.startswith("F8") or "scale" in n or "qweight" in n for n, h in s.given.headers.items()):
            return warn("a quantised head", "bfloat16", "its weights are not judged here, and are not replayed")
        return fail("quantization_config is there", "none", "the weights are not quantised: take it out of config.json")
    if found not in (None, *TYPES):
        return fail(f"{found!r}", f"one of {', '.join(TYPES)}", "write the one that the weights have")
    if s.engine is Engine.vllm:
        return ok(f"{found or 'not said'}; loaded in the target's")
    if found is None:
        return warn("not said: float16 is taken", s.config.server.dtype, "write dtype into config.json")
    if found == "float16" and s.config.server.dtype != "float16":
        return warn("float16", s.config.server.dtype, "deep aux states may overflow in float16")
    return ok(str(found))
