"""Does acceptance change along an answer? From the drafts that each of its verify steps accepted.

A stretch of an answer is made of the steps that start in it: whole steps, so a constant acceptance shows as constant,
and the stretches add up to the answer. Its accept length is 1 + correct drafts / verify steps, as for the answer.
(Tokens / verify steps is less by what the last step of an answer accepted beyond its end.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from eagle_lab.evaluate import intervals

FIRST_STRETCH = 32
"""Tokens; every later stretch reaches twice as far, since few answers are long."""


def within(correct_by_step: list[int], start: float, end: float) -> tuple[int, int]:
    """(correct drafts, verify steps) of the steps that start at `start` tokens or more and at less than `end`."""
    drafts = steps = 0
    # prefill gave the first token
    tokens = 1
    for correct in correct_by_step:
        if start <= tokens < end:
            drafts, steps = drafts + correct, steps + 1
        tokens += correct + 1
    return drafts, steps


def by_position(requests: list[dict[str, Any]], max_new_tokens: int) -> list[dict[str, Any]]:
    """[{from, to, accept_length, low, high, requests}] for tokens 1-32, 33-64, 65-128, ... of the answers.

    requests: how many answers have a verify step in the stretch. Later stretches are those of the longer answers only:
    `drift` compares each answer with itself.
    """
    edges = [0, FIRST_STRETCH]
    while edges[-1] < max_new_tokens:
        edges.append(2 * edges[-1])
    found = []
    for start, end in pairwise([*edges[:-1], max_new_tokens]):
        reaching = [r for r in _seen(requests) if within(r["correct_by_step"], start, end)[1]]
        if reaching:
            length = intervals.accept_length(_counts((r, start, end) for r in reaching))
            facts = {"accept_length": length.value, "low": length.low, "high": length.high}
            found.append({"from": start + 1, "to": end, **facts, "requests": len(reaching)})
    return found


def drift(requests: list[dict[str, Any]]) -> intervals.Interval | None:
    """Accept length in the second half of every answer minus that in its first half, paired by prompt.

    None where no prompt has a verify step in both.
    """
    sizes = [(r, 1 + sum(correct + 1 for correct in r["correct_by_step"])) for r in _seen(requests)]
    early = _counts((r, 0, size / 2) for r, size in sizes)
    late = _counts((r, size / 2, size) for r, size in sizes)
    split = [p for p in early if early[p][1] and late[p][1]]
    if not split:
        return None
    return intervals.accept_length_difference({p: late[p] for p in split}, {p: early[p] for p in split})


def _seen(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in requests if r.get("correct_by_step") is not None]


def _counts(stretches: Iterable[tuple[dict[str, Any], float, float]]) -> dict[str, list[float]]:
    """Prompt id -> [correct drafts, verify steps] within (request, start, end)."""
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0])
    for request, start, end in stretches:
        counts = within(request["correct_by_step"], start, end)
        found[request["prompt"]] = [x + y for x, y in zip(found[request["prompt"]], counts, strict=True)]
    return dict(found)
