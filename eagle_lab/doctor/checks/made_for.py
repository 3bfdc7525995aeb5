"""Was the head made for this target?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.serve.pairing import check_target

NAME = "made for this target"
CATCHES = "Another vocabulary or width than the target's, an export for other weights, a target class without capture."
REPORTS = ("SpecForge#487", "vllm-ascend#5974")
NEEDS = ("head", "target")
LEADS_TO = ("aux layers", "aux width", "vocabulary map", "embedding", "rope")


def look(s: Subject) -> Finding:
    target, c = s.its_target, s.given.config
    if s.engine is Engine.sglang:  # vLLM captures in nearly every class, and in those of transformers
        check_target(target.path, target.architecture)
    pairs: dict[str, tuple[object, object]] = {
        "vocab_size": (c.get("vocab_size"), target.vocab_size),
        "hidden_size": (c.get("target_hidden_size") or c.get("hidden_size"), target.hidden_size),
    }
    for name, (own, theirs) in pairs.items():
        if not isinstance(own, int) or own < 1:
            return fail(f"{name}={own!r}", f"{theirs}, the target's", "correct config.json")
        if own != theirs:
            return fail(f"{name}={own}", f"{theirs}, the target's", "serve it with the target it was trained for")
    made = {
        "target_architecture": target.architecture,
        "num_hidden_layers": target.num_hidden_layers,
        "target_digest": target.digest,
    }
    for name, its in made.items():
        stated = s.given.export.get(name)
        if stated is not None and stated != its:
            return fail(f"exported for {name}={stated}", str(its), "serve it with the target it was trained for")
    return ok(f"vocabulary and width are those of {target.name}" + (", its export names it" if s.given.export else ""))
