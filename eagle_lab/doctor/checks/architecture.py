"""Is it a class that SGLang serves as EAGLE-3?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.serve.pairing import EAGLE3_HEADS

NAME = "architecture"
CATCHES = (
    "A class that SGLang has no EAGLE-3 code for: an EAGLE-1 head, speculators' own class, the target's class. "
    "Served as EAGLE, or taken for a target, it accepts next to nothing."
)
REPORTS = ("sglang PR#21272", "sglang#36528", "SpecForge#215", "EAGLE#292", "sglang#8229")
NEEDS = ("head",)
LEADS_TO = ("tensors", "draft vocabulary", "aux layers", "aux width", "tied embeddings")


def look(s: Subject) -> Finding:
    found = s.given.architecture
    if found in EAGLE3_HEADS:
        return ok(f"{found}, served with --speculative-algorithm EAGLE3")
    wanted = " or ".join(sorted(EAGLE3_HEADS))
    if "speculators_model_type" in s.given.config or found in ("Eagle3DraftModel", "Eagle3Speculator"):
        return fail(f"{found} (speculators)", wanted, "vLLM loads it as it is; for SGLang it has to be converted")
    return fail(found, wanted, "convert the head, or correct `architectures` in its config.json")
