"""Does it pay?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, Skipped, ok, warn
from eagle_lab.doctor.subject import Subject
from eagle_lab.serve.client import Completion

NAME = "break-even"
CATCHES = "A head that accepts drafts and still makes the server slower: too many draft tokens for its accept length."
REPORTS = ("SpecForge#339", "sglang#11948", "sglang#12411", "EAGLE#298", "sglang#5502")
NEEDS = ("head", "target", "served")
LEADS_TO = ()


def look(s: Subject) -> Finding:
    served, accepted = s.server, s.server.accept_length
    if served.plain is None or accepted is None:
        raise Skipped("that server is not ours to start without speculation" if accepted else "no verify step")
    with_it, without = speed(served.answers), speed(served.plain)
    if not with_it or not without:
        raise Skipped("the answers are too short to time: raise suite.max_new_tokens")
    needed = accepted * without / with_it
    text = (
        f"{with_it:.1f} tok/s against {without:.1f} without, one request at a time: accept length {accepted:.2f}, "
        f"{needed:.2f} needed"
    )
    if accepted < needed:
        return warn(text, "more than is needed", "fewer draft tokens (spec.num_draft_tokens), or a better head")
    return ok(text)


def speed(answers: list[Completion]) -> float | None:
    """Tokens per second after each answer's first; None where there is nothing to time."""
    taken = sum(a.total_s - a.first_token_s for a in answers)
    tokens = sum(len(a.token_ids) - 1 for a in answers)
    return tokens / taken if taken > 0 and tokens > 0 else None
