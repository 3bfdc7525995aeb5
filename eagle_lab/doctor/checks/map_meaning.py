"""Do the rows of lm_head stand for the tokens that d2t says?"""

from __future__ import annotations

import torch
from torch import Tensor

from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "meaning of the draft ids"
CATCHES = (
    "A vocabulary map that was made anew after training, which no file shows: each draft id that the head proposes"
    " often is followed by one token of its own, and it is not the token that d2t names."
)
REPORTS = ("SpecForge PR#534", "SpecForge#300", "verl-SpeCo PR#66", "Automodel PR#2447")
NEEDS = ("head", "target", "served")
LEADS_TO = ("random head", "accept length", "break-even")

OFTEN, ENOUGH = 5, 20
"""Proposals of one id; proposals of all such ids together."""
TELLING, AGREEING = 0.25, 0.5
"""Of the proposals. SmolLM2's head of three minutes: 31 % are followed by their id's most frequent token, and for 85 %
it is d2t's; with a map made anew, which kept some of the ids, for 22 %.
"""


def look(s: Subject) -> Finding:
    drafts, tokens = s.truth.proposals
    telling, agreeing, count = meaning(drafts, tokens, s.truth.ours.target_ids(drafts))
    if count < ENOUGH:
        raise Skipped(f"only {count} proposals of ids that come {OFTEN} times: raise suite.max_new_tokens")
    text = f"{telling:.0%} of {count} frequent proposals are followed by one token per id, {agreeing:.0%} have d2t's"
    if telling > TELLING and agreeing < AGREEING:
        return fail(
            text,
            "the tokens that d2t names",
            "d2t and t2d are of another training: take those that lm_head was trained with",
        )
    return ok(text)


def meaning(drafts: Tensor, tokens: Tensor, named: Tensor) -> tuple[float, float, int]:
    """(share of proposals followed by their id's most frequent token, share of proposals whose id's is the named one,
    proposals counted) of the ids that are proposed OFTEN; drafts, tokens, named [N]: draft id, next token, d2t's.
    """
    followed = right = count = 0
    for draft in drafts.unique():
        at = drafts == draft
        if int(at.sum()) < OFTEN:
            continue
        most, times = torch.unique(tokens[at], return_counts=True)
        count += int(at.sum())
        followed += int(times.max())
        right += int(at.sum()) * int(most[times.argmax()] == named[at][0])
    return followed / max(1, count), right / max(1, count), count
