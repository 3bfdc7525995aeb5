"""Does the head know more than one that was never trained?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.evaluate.intervals import pooled_survival

NAME = "random head"
CATCHES = (
    "A head that drafts no better than one of the same sizes with random weights, replayed over the same tokens: it was"
    " not trained, or what was saved is not what was trained."
)
REPORTS = ("EAGLE#227", "SpecForge#392", "SpecForge PR#534")
NEEDS = ("head", "target", "served")
LEADS_TO = ("accept length", "break-even")

LEAST = 0.02
"""Drafts per verify step above the random head's; random ones have 0.000 to 0.003."""


def look(s: Subject) -> Finding:
    ours, random = (sum(pooled_survival(r.predicted for r in part)) for part in (s.truth.replayed, s.truth.random))
    text = f"replayed accept length {1 + ours:.2f}; a random head's {1 + random:.2f}"
    if ours < random + LEAST:
        return fail(text, "more than chance", "training is at fault: look at its loss, mask and draft vocabulary")
    return ok(text)
