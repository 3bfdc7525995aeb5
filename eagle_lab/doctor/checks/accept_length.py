"""Is the accept length what training promised?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, Skipped, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "accept length"
CATCHES = "An accept length near 1, or far below what the head's own held-out evaluation promised."
REPORTS = ("SpecForge#128", "EAGLE#276", "SpecForge#113", "SpecForge#455", "BaldEagle#15")
NEEDS = ("head", "target", "served")
LEADS_TO = ("break-even",)

NOTHING = 1.05
SHORT = 0.7
"""Of the promised drafts; suites differ from the training's held-out text."""


def look(s: Subject) -> Finding:
    found = s.server.accept_length
    if found is None:
        raise Skipped("no verify step in any answer: raise suite.max_new_tokens")
    promised = sum((s.given.export.get("held_out_cumulative") or [])[: s.server.launch.spec.num_steps])
    text = f"{found:.2f}" + (f"; held-out text promised {1 + promised:.2f}" if promised else "")
    if found <= NOTHING:
        return fail(
            text,
            f"above {NOTHING}",
            "if the checks above pass, the head knows too little: more of the target's own answers to train on",
        )
    if found - 1 < SHORT * promised:
        return warn(text, f"{SHORT:.0%} of the promised drafts", "is the suite another kind of text than the data?")
    return ok(text)
