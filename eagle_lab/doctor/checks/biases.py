"""Are there biases that SGLang drops?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "biases"
CATCHES = "Biases of q, k, v or the MLP: SGLang's EAGLE-3 layer has none, whatever attention_bias says."
REPORTS = ("SpecForge#292",)
NEEDS = ("head",)
LEADS_TO = ("tensors",)


def look(s: Subject) -> Finding:
    head = s.given
    found = sorted(n for n in head.headers if n.endswith(".bias"))
    dropped = [n for n in found if not (n == "fc.bias" and head.config.get("bias"))]
    if dropped:
        return fail(", ".join(dropped[:3]), "none", "train without biases (attention_bias=false): these are not read")
    if "fc.bias" not in found and head.config.get("bias"):
        return fail("bias=true, no fc.bias", "both or none", "noise is served: set bias to false")
    return ok("none" if not found else "fc.bias, read")
