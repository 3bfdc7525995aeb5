"""Is anything supervised, and where does it start?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "loss mask"
CATCHES = "A dataset of which next to nothing is supervised, or nearly everything: a template that did not match."
REPORTS = ("SpecForge#392", "SpecForge#885", "EAGLE#91", "speculators PR#346")
NEEDS = ("dataset",)
LEADS_TO = ()


def look(s: Subject) -> Finding:
    facts = s.tokens.manifest
    ratio = facts["mask_ratio"]
    text = f"{ratio:.0%} of {facts['tokens']:,} tokens"
    if ratio < 0.02:  # long documents to answer from may come near it
        say = fail if ratio < 0.001 else warn
        return say(text, "answers", "look at rows.jsonl: does the answer start where it should?")
    if ratio > 0.98:
        return warn(text, "prompts, too", "a prompt of a few tokens is not what is served")
    return ok(text)
