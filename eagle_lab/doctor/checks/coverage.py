"""Can the head draft what the target says?"""

from __future__ import annotations

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import DraftInit
from eagle_lab.data.vocab_map import build_map
from eagle_lab.data.vocab_map import coverage as share
from eagle_lab.doctor.finding import Finding, Skipped, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "coverage"
CATCHES = "A draft vocabulary that leaves out much of the held-out answers: an upper bound on what can be accepted."
REPORTS = ("SpecForge PR#602", "speculators PR#1081")
NEEDS = ("dataset", "target")
LEADS_TO = ()

ENOUGH = 0.9


def look(s: Subject) -> Finding:
    size, target = s.config.draft.vocab_size, s.its_target
    if not len(s.tokens.holdout):
        raise Skipped("the dataset holds nothing out")
    if s.config.draft.init in (DraftInit.head, DraftInit.analytic):
        raise Skipped(f"draft.init={s.config.draft.init.value} has a map of its own")
    try:
        vocab = build_map(s.tokens, size, target.vocab_size, always=target.eos_token_ids)
    except LabError as e:
        raise Skipped(str(e)) from e
    found = share(vocab, s.tokens.holdout.answer_ids())
    assert found is not None
    text = f"{found:.1%} of the held-out answer tokens by {size:,} draft tokens"
    if found < ENOUGH:
        return warn(text, f"{ENOUGH:.0%}", "raise draft.vocab_size, or train on more text")
    return ok(text)
