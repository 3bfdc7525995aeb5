"""How many answers were cut?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "cut answers"
CATCHES = "Rows cut at data.max_length, and answers that hardly ever end: the head never sees the end of a turn."
REPORTS = ("AngelSlim#288", "EAGLE#317", "speculators PR#774")
NEEDS = ("dataset",)
LEADS_TO = ()


def look(s: Subject) -> Finding:
    facts = s.tokens.manifest
    cut, ends, rows = facts["cut_at_max_length"], facts["ends_with_eos"], facts["rows"]
    text = f"{cut} of {rows} rows cut, {ends} end their turn"
    if cut > 0.2 * rows:
        return warn(text, "at most a fifth cut", "raise data.max_length")
    if ends < 0.05 * rows:
        return warn(text, "answers that end", "raise data.answers.max_new_tokens")
    return ok(text)
