"""Is the MLP's activation the one that was trained?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "activation"
CATCHES = "hidden_act other than silu: the Llama MLP of both engines refuses it at start."
REPORTS = ("speculators#796",)
NEEDS = ("head",)
LEADS_TO = ()


def look(s: Subject) -> Finding:
    found = s.field("hidden_act")
    if found not in (None, "silu"):
        return fail(str(found), "silu", "both engines' classes run silu only")
    return ok("silu")
