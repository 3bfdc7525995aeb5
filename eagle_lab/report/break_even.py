"""The break-even section: costs of a round, measured points beside their prediction, chains that were not measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eagle_lab.report.cost_model import Costs, Point, Prediction, chains, left_out, points
from eagle_lab.report.table import link, markdown, number, short

WORTH_NAMING = 1.02
"""An unmeasured chain is named when it is predicted this much faster than all that was measured: two launches of plain
decoding on one H200 differ by 1.5 % (docs/results/h200.jsonl)."""


@dataclass(frozen=True)
class Head:
    """The measured spec points of one head under one condition, in table order; at least one."""

    digest: str | None
    measured: list[Point]

    @cached_property
    def left_out(self) -> list[Prediction | None]:
        """Each measured point predicted from the others."""
        return left_out(self.measured)

    @cached_property
    def costs(self) -> Costs:
        return Costs(self.measured)

    @cached_property
    def chains(self) -> list[Prediction]:
        return chains(self.measured, self.costs)

    @property
    def baseline_tok_s(self) -> float | None:
        return next((p.baseline_tok_s for p in self.measured if p.baseline_tok_s), None)

    @property
    def errors(self) -> list[float]:
        """predicted / measured - 1 of tok/s, over the points that the others determine."""
        pairs = zip(self.left_out, self.measured, strict=True)
        return [found.tok_s / p.tok_s - 1 for found, p in pairs if found]


def heads(rows: list[dict[str, Any]]) -> list[Head]:
    """Of rows that share a condition. Costs are not shared between heads: they may differ in size."""
    by_head: dict[str | None, list[dict[str, Any]]] = {}
    for row in rows:
        by_head.setdefault(row.get("head_digest"), []).append(row)
    return [Head(digest, found) for digest, own in by_head.items() if (found := points(own))]


UNDISTURBED = (
    "The machine was not equally fast for all points. Rounds, plain steps and tok/s are undisturbed ones here: those of"
    " the fastest tenth of each point's requests, from their first token on."
)


def derived(head: Head) -> dict[str, dict[str, float | None]]:
    """Fingerprint -> the columns that summary.csv adds to a row."""
    return {
        p.fingerprint: {
            "round_s": p.round_s,
            "undisturbed_tok_s": p.tok_s if p.undisturbed else None,
            "plain_step_s": p.plain_step_s,
            "predicted_accept_length": found.accept_length if found and found.from_survival else None,
            "predicted_round_s": found.round_s if found else None,
            "predicted_tok_s": found.tok_s if found else None,
        }
        for p, found in zip(head.measured, head.left_out, strict=True)
    }


def faster_chain(of: list[Head]) -> str:
    """A sentence on the unmeasured chain that is predicted to be the fastest of all, plain decoding included; or ''."""
    specs = {head.digest: {p.spec for p in head.measured} for head in of}
    plain = next((head.baseline_tok_s for head in of if head.baseline_tok_s), None)
    tried = [(c, head) for head in of for c in head.chains if c.spec not in specs[head.digest]]
    if not tried or not plain:
        return ""
    best, head = max(tried, key=lambda pair: pair[0].tok_s)
    if best.tok_s < WORTH_NAMING * max([plain, *(p.tok_s for h in of for p in h.measured)]):
        return ""
    worst = max(map(abs, head.errors), default=None)
    trust = (
        "no measured point could be left out to check this"
        if worst is None
        else f"measured points are predicted from the others within {100 * worst:.0f} %"
    )
    return (
        f"Predicted, not measured: {best.spec}{_of(head)} would be fastest, at {_ratio(best.tok_s, plain)} x plain "
        "decoding "
        f"({number(best.tok_s, 1)} tok/s at accept length {number(best.accept_length)}; {trust}). Measure "
        f"it before choosing it: spec=chain spec.num_draft_tokens={best.tokens}."
    )


def section(of: list[Head]) -> list[str]:
    """Markdown; empty without a spec point."""
    if not of:
        return []
    measured = [line for head in of for line in _measured(head)]
    predicted = [line for head in of for line in _chains(head)]
    header = ["spec", "head", "plain step (ms)", "round (ms)", "break-even at", "accept length", "tok/s"]
    undisturbed = all(p.undisturbed for head in of for p in head.measured)
    parts = ["### Break-even, and each point predicted from the others", *([UNDISTURBED] if undisturbed else [])]
    parts += [_costs(head) for head in of]
    parts.append(
        markdown(
            [*header, *(f"predicted {name}" for name in ("accept length", "round (ms)", "tok/s")), "error"], measured
        )
    )
    if predicted:
        header = ["chain", "head", "accept length", "round (ms)", "break-even at", "tok/s", "speed-up"]
        parts += ["### Chains predicted from all points", markdown(header, predicted)]
        parts += [_best(head) for head in of if head.chains]
    return parts


def _of(head: Head) -> str:
    return f" (head {short(head.digest)})" if head.digest else ""


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else 1000 * seconds)


def _costs(head: Head) -> str:
    """What the points tell about costs, with links to them."""
    costs, rows = head.costs, ", ".join(link(p.spec, p.fingerprint) for p in head.measured)
    start = f"Costs{_of(head)} from {rows}: "
    if (steps := costs.steps_s()) is not None:
        fewest, most = costs.design.fewest, costs.design.most
        return (
            f"{start}a draft step {_ms(steps[0])} ms on a chain, {_ms(steps[1])} ms on a tree; verifying, with what "
            f"is fixed per round, {_ms(costs.verify_s(fewest))} ms for {fewest} tokens and "
            f"{_ms(costs.verify_s(most))} ms for {most}."
        )
    if len(head.chains) > 1:
        first, last = head.chains[0], head.chains[-1]
        more = 1000 * (last.round_s - first.round_s) / (last.tokens - first.tokens)
        return (
            f"{start}one more token on a chain, drafted and verified, {number(more, 3)} ms. To tell "
            "drafting from verifying takes two trees of different shape as well."
        )
    return f"{start}too few points to tell what a round would cost elsewhere; at least two chains are needed."


def _best(head: Head) -> str:
    """The fastest of what can be judged."""
    speeds = {f"{c.spec} ({c.tokens - 1} steps, topk 1, {c.tokens} tokens)": c.tok_s for c in head.chains}
    for p in head.measured:
        if p.topk > 1:
            speeds[f"{p.spec} ({p.steps} steps, topk {p.topk}, {p.tokens} tokens)"] = p.tok_s
    if head.baseline_tok_s:
        speeds["plain decoding"] = head.baseline_tok_s
    best = max(speeds, key=lambda name: speeds[name])
    return (
        f"Best{_of(head)} of these chains, the measured trees and plain decoding: {best}, {number(speeds[best], 1)} "
        "tok/s. Trees that were not measured are not judged: their accept length does not follow from other points."
    )


def _measured(head: Head) -> list[list[str]]:
    cells = []
    for p, found in zip(head.measured, head.left_out, strict=True):
        line = [link(p.spec, p.fingerprint), short(head.digest), _ms(p.plain_step_s), _ms(p.round_s)]
        line += [_ratio(p.round_s, p.plain_step_s), number(p.accept_length), number(p.tok_s, 1)]
        if found is None:
            cells.append([*line, "-", "-", "-", "-"])
            continue
        accept = number(found.accept_length) if found.from_survival else "as measured"
        seconds = _ms(found.round_s) + (" (extrapolated)" if found.extrapolated else "")
        cells.append([*line, accept, seconds, number(found.tok_s, 1), f"{100 * (found.tok_s / p.tok_s - 1):+.1f} %"])
    return cells


def _chains(head: Head) -> list[list[str]]:
    rows = {p.spec: p.fingerprint for p in head.measured}
    return [
        [
            link(c.spec, rows[c.spec]) if c.spec in rows else c.spec,
            short(head.digest),
            number(c.accept_length),
            _ms(c.round_s) + (" (extrapolated)" if c.extrapolated else ""),
            _ratio(c.accept_length * (head.baseline_tok_s or 0), c.tok_s),
            number(c.tok_s, 1),
            _ratio(c.tok_s, head.baseline_tok_s),
        ]
        for c in head.chains
    ]


def _ratio(a: float | None, b: float | None) -> str:
    return number(a / b if a and b else None)
