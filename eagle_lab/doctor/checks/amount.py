"""Is there enough to learn from?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "amount of data"
CATCHES = "A few hundred conversations, or answers that the target did not write: accept lengths of 1.0 to 1.9."
REPORTS = ("SpecForge#128", "EAGLE#276", "EAGLE#227", "speculators#751", "speculators#613")
NEEDS = ("dataset",)
LEADS_TO = ()

LITTLE = 1_000_000
"""Supervised tokens; 354,700 gave SmolLM2-135M a replayed accept length of 2.1 (docs/training.md)."""


def look(s: Subject) -> Finding:
    facts = s.tokens.manifest
    text = f"{facts['supervised_tokens']:,} supervised tokens"
    if not facts.get("regenerated", True):
        return warn(f"{text}, not written by the target", "the target's own answers", "data.answers.regenerate=true")
    if facts["supervised_tokens"] < LITTLE:
        return warn(text, f"{LITTLE:,} and more", "more conversations: nothing helps the accept length as much")
    return ok(text)
