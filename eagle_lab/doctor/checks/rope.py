"""Do the head's positions turn as the target's do?"""

from __future__ import annotations

from typing import Any

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.subject import Subject
from eagle_lab.draft.shape import rope_parameters

NAME = "rope"
CATCHES = (
    "A rope type, theta or scaling that is not the target's, was dropped in a conversion, or stands only under "
    "the name that other versions of transformers read (`rope_theta` and `rope_scaling`; since 5 "
    "`rope_parameters`)."
)
REPORTS = ("speculators PR#574", "Automodel PR#2399", "slime PR#277")
NEEDS = ("head", "target")
LEADS_TO = ()


def look(s: Subject) -> Finding:
    c = s.given.config
    if not isinstance(c.get("rope_theta", 0.0), int | float | None):
        return fail(f"rope_theta={c['rope_theta']!r}", "a number", "write it without quotes")
    own, wanted = _known(rope_parameters(c)), _known(rope_parameters(s.its_target.config))
    # our exporter writes the target's; another trainer may have trained with its own
    say = fail if s.given.export else warn
    if "rope_parameters" not in c and "rope_theta" not in c:
        return say("nothing about rope: theta 10,000 is taken", str(wanted), "write rope_parameters into config.json")
    if c.get("rope_parameters") and c.get("rope_theta") and c["rope_parameters"].get("rope_theta") != c["rope_theta"]:
        return fail(f"rope_theta={c['rope_theta']} beside {own}", "one value", "make both say the same")
    if own != wanted:
        return say(f"{own}", f"{wanted}, as the target", "write the target's, unless the head was trained otherwise")
    if s.engine is Engine.sglang and ("rope_parameters" not in c or "rope_theta" not in c):
        missing = "rope_theta" if "rope_theta" not in c else "rope_parameters"
        return warn(f"no {missing}", "both spellings", "other engines read the other one")
    return ok(", ".join(f"{k} {v}" for k, v in own.items()))


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {k: float(v) if isinstance(v, int | float) else v for k, v in sorted(found.items()) if v is not None}
