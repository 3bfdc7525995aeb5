"""What a round of speculation costs, fitted to measured points, and the speed of points that were not measured.

A round drafts `num_steps` times and verifies `num_draft_tokens` tokens, for all requests in flight at once. With c in
flight it yields c x accept length tokens, so in R seconds a round the speed is c * accept_length / R. R is
c * accept_length / tok_s, which holds a share of the prompts too; where the machine was not steady (STEADY) it is that
of the fastest tenth of the point's requests (evaluate.speed.rounds), a plain step that of plain decoding's. The model:

    R(steps, topk, n) = fixed + steps * (draft + branch * [topk > 1]) + token * n + sum_m bend_m * max(0, n - m)

with no cost below zero (non-negative least squares on relative errors). m runs over the measured chain lengths between
the shortest and the longest, so verification may turn from flat (memory-bound) to steep (compute-bound) but not back:
the roofline of Williams et al. 2009, doi:10.1145/1498765.1498785.

A machine is not equally fast at all times. In three early sweeps on H200s the same lone prompts took 23 to 48 ms while
different points were timed, and a round kept to 0.106 to 0.114 of its point's own. So rounds are fitted, and predicted,
relative to these.

On a chain steps = n - 1, so chains alone give fixed - draft and draft + token, which is all that another chain needs;
trees tell draft and token apart. What the points do not determine is not predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import nnls

Shape = tuple[int, int, int]
"""(num_steps, eagle_topk, num_draft_tokens)"""
NEEDED = ("num_steps", "eagle_topk", "num_draft_tokens", "accept_length", "tok_s", "concurrency")
STEADY = 1.4
"""Largest over smallest `pace` of points whose tok/s is taken as measured; beyond, that of their fastest tenth is.
Chains of 3 to 16 tokens predicted from the others of three H200 sweeps: the steady ones (1.33 at most) within 13.7 % as
measured, 15.7 % by the fastest tenth (what=draft_tokens_before); the other (1.6) within 32 and 15.4 %."""


@dataclass(frozen=True)
class Point:
    """A measured spec point."""

    spec: str
    steps: int
    topk: int
    tokens: int
    concurrency: int
    """Requests in flight: fewer than were asked for where the suite has fewer conversations."""
    accept_length: float
    tok_s: float
    """Undisturbed, where the row knows a round of that kind."""
    survival: list[float]
    """P(at least k drafts correct) for k = 1, 2, ...; a missing tail is zero."""
    baseline_tok_s: float | None
    """Of plain decoding; None where none was measured."""
    fingerprint: str
    prompt_s: float | None = None
    """What the fastest lone prompts took while this point was timed; None in rows of before it was kept."""
    undisturbed: bool = False
    """Whether the speeds are those of the fastest tenth of the requests, prompts left out."""

    @property
    def shape(self) -> Shape:
        return self.steps, self.topk, self.tokens

    @property
    def round_s(self) -> float:
        return self.concurrency * self.accept_length / self.tok_s

    @property
    def plain_step_s(self) -> float | None:
        return self.concurrency / self.baseline_tok_s if self.baseline_tok_s else None


@dataclass(frozen=True)
class Prediction:
    """A point as the model sees it."""

    spec: str
    tokens: int
    accept_length: float
    round_s: float
    tok_s: float
    from_survival: bool
    """The accept length is predicted too; False: it is the measured one of this very point."""
    extrapolated: bool
    """More or fewer draft tokens than any point of the fit, or more draft steps: a chain of 16 tokens, predicted from
    chains up to 12 and a tree of 24, was 13.7 % too slow on an H200."""


def points(rows: list[dict[str, Any]]) -> list[Point]:
    """The spec points among rows of one condition and one head; rows that lack a number are left out."""
    known = [r for r in rows if r["spec"] != "none" and all(r.get(k) for k in NEEDED)]
    # all of them and their baseline, or none: what is compared is to be of one kind
    kept = all(r.get("undisturbed_round_s") for r in known) and all(
        r.get("baseline_undisturbed_round_s") for r in known if r.get("baseline_tok_s")
    )
    return [_point(r, kept and not steady(known)) for r in known]


def pace(row: dict[str, Any]) -> float | None:
    """Proportional to what the same work took: the fastest lone prompts, and how far the median round was off its own
    fastest. None for a row of before lone prompts were timed."""
    return float(row["prompt_s"] * (row.get("round_spread") or 1.0)) if row.get("prompt_s") else None


def steady(rows: list[dict[str, Any]]) -> bool:
    """Whether the machine was about as fast for each of these points, by all that is known of it."""
    known = [found for r in rows if (found := pace(r))]
    return not known or max(known) <= STEADY * min(known)


def _point(r: dict[str, Any], undisturbed: bool) -> Point:
    in_flight, tok_s, plain = r.get("in_flight") or r["concurrency"], r["tok_s"], r.get("baseline_tok_s")
    if undisturbed:
        tok_s = in_flight * r["accept_length"] / r["undisturbed_round_s"]
        plain = in_flight / r["baseline_undisturbed_round_s"] if plain else None
    return Point(
        spec=r["spec"],
        steps=r["num_steps"],
        topk=r["eagle_topk"],
        tokens=r["num_draft_tokens"],
        concurrency=in_flight,
        accept_length=r["accept_length"],
        tok_s=tok_s,
        survival=r.get("survival") or [],
        baseline_tok_s=plain,
        fingerprint=r["fingerprint"],
        prompt_s=r.get("prompt_s"),
        undisturbed=undisturbed,
    )


@dataclass(frozen=True)
class Design:
    """What the shapes of measured points determine, whatever their rounds take."""

    fewest: int
    most: int
    """Tokens."""
    deepest: int
    """Draft steps."""
    knots: np.ndarray
    directions: np.ndarray
    """Orthonormal rows that span what the points determine of (fixed, draft, branch, token)."""
    features: np.ndarray
    """[points, costs]"""

    def extrapolates(self, steps: int, tokens: int) -> bool:
        """Whether a shape lies beyond these points: fewer or more tokens to verify, or more draft steps."""
        return not self.fewest <= tokens <= self.most or steps > self.deepest


def _features(shapes: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """[shapes, costs]: fixed, draft, branch, token, then the bends."""
    steps, topk, tokens = shapes.T
    found = np.empty((len(shapes), 4 + len(knots)))
    found[:, 0], found[:, 1], found[:, 2], found[:, 3] = 1.0, steps, steps * (topk > 1), tokens
    np.maximum(0.0, tokens[:, None] - knots, out=found[:, 4:])
    return found


# conditions repeat the same few grids of spec points
@lru_cache(maxsize=1024)
def _design(shapes: tuple[Shape, ...]) -> Design:
    steps, _, tokens = zip(*shapes, strict=True)
    knots = np.array(sorted({n for _, topk, n in shapes if topk == 1})[1:-1])
    features = _features(np.array(shapes), knots)
    _, sizes, directions = np.linalg.svd(features[:, :4], full_matrices=False)
    return Design(min(tokens), max(tokens), max(steps), knots, directions[sizes > 1e-9 * sizes[0]], features)


class Costs:
    """The model fitted to points of one condition and one head; at least one."""

    def __init__(self, measured: list[Point]) -> None:
        self.design = _design(tuple(p.shape for p in measured))
        known = [p.prompt_s for p in measured if p.prompt_s]
        self.prompt_s = float(np.median(known)) if len(known) == len(measured) else None
        """The machine's pace that all seconds of this model hold for; None where it is not known of every point."""
        features, rounds = self.design.features, np.array([p.round_s / self.slower(p) for p in measured])
        # scipy's own limit of 3 iterations a column is met now and then by collinear columns
        self._costs, _ = nnls(features / rounds[:, None], np.ones(len(rounds)), maxiter=100 * features.shape[1])

    def slower(self, point: Point) -> float:
        """By what factor the machine was slower while the point was timed; 1 where that is not known."""
        return point.prompt_s / self.prompt_s if point.prompt_s and self.prompt_s else 1.0

    def rounds_s(self, shapes: np.ndarray) -> np.ndarray:
        """Seconds of a round of each shape; nan where the fitted points do not determine it.

        They do when a shape lies in their span: every fit that explains them gives such a combination of costs one
        value.
        """
        features, known = _features(shapes, self.design.knots), self.design.directions
        wanted = features[:, :4]
        rest = wanted - (wanted @ known.T) @ known
        determined = np.abs(rest).max(axis=1) < 1e-6 * wanted.max(axis=1)
        return np.where(determined, features @ self._costs, np.nan)

    def round_s(self, steps: int, topk: int, tokens: int) -> float | None:
        """Seconds of a round; None where the fitted points do not determine it."""
        (seconds,) = self.rounds_s(np.array([(steps, topk, tokens)]))
        return None if np.isnan(seconds) else float(seconds)

    def steps_s(self) -> tuple[float, float] | None:
        """Seconds of a chain's draft step and of a tree's; None unless chains and trees tell all costs apart."""
        if len(self.design.directions) < 4:
            return None
        _, draft, branch, _ = map(float, self._costs[:4])
        return draft, draft + branch

    def verify_s(self, tokens: int) -> float:
        """Seconds to verify so many tokens, with what is fixed per round: a round without drafting."""
        return float(_features(np.array([(0, 1, tokens)]), self.design.knots)[0] @ self._costs)


def chain_accept_length(measured: list[Point], tokens: int) -> float | None:
    """Accept length of a chain of `tokens`: 1 + the first tokens - 1 survivals of the next deeper measured chain.

    A greedy draft does not depend on how many follow it, so this is what the first drafts of that chain's own rounds
    yield. A shorter chain also starts rounds at positions that a deeper one skips: from 16 tokens the accept length of
    5 comes out 6.5 to 9.6 % too short, from 6 tokens 0.9 to 3.6 % (docs/results/h200.jsonl, what=draft_tokens). None
    without a chain that deep: what a further draft, or a branch, would add was not measured.
    """
    deeper = [p for p in measured if p.topk == 1 and p.tokens >= tokens and p.survival]
    if not deeper:
        return None
    return 1 + sum(min(deeper, key=lambda p: p.tokens).survival[: tokens - 1])


def left_out(measured: list[Point]) -> list[Prediction | None]:
    """Each point predicted from those of other shapes, at its own pace; None where they do not determine its round."""
    found: list[Prediction | None] = []
    for point in measured:
        others = [p for p in measured if p.shape != point.shape]
        costs = Costs(others) if others else None
        seconds = costs.round_s(*point.shape) if costs else None
        if costs is None or not seconds:
            found.append(None)
            continue
        seconds *= costs.slower(point)
        predicted = chain_accept_length(others, point.tokens) if point.topk == 1 else None
        accepted = predicted or point.accept_length
        speed = point.concurrency * accepted / seconds
        beyond = costs.design.extrapolates(point.steps, point.tokens)
        found.append(Prediction(point.spec, point.tokens, accepted, seconds, speed, predicted is not None, beyond))
    return found


def chains(measured: list[Point], costs: Costs) -> list[Prediction]:
    """Every chain from 2 draft tokens to the deepest measured; empty where chains are not determined.

    Trees that were not measured are not among them: neither their cost nor their accept length follows from chains.
    """
    lengths = range(2, max((p.tokens for p in measured if p.topk == 1), default=0) + 1)
    if not lengths:
        return []
    found = []
    rounds = costs.rounds_s(np.array([(tokens - 1, 1, tokens) for tokens in lengths])).tolist()
    for tokens, seconds in zip(lengths, rounds, strict=True):
        accepted = chain_accept_length(measured, tokens)
        if accepted is None or not seconds > 0:  # nan is not
            return []
        speed, beyond = measured[0].concurrency * accepted / seconds, costs.design.extrapolates(tokens - 1, tokens)
        found.append(Prediction(f"chain_{tokens}", tokens, accepted, seconds, speed, True, beyond))
    return found
