"""Which point to use, in words, from rows that share a condition."""

from __future__ import annotations

from typing import Any

from eagle_lab.report.cost_model import pace, steady
from eagle_lab.report.table import interval, number, short

BRIEF_S = 5.0
"""Speeds timed over less are not to be trusted. With 24 in flight on an H200 the steady parts of a sweep were 0.2 to
0.3 s, of which somebody waited for a prompt 68 to 84 % (docs/results/h200.jsonl at 46c1f40): no speed of decoding."""

PACE = 1.1
"""A machine that was slower than this beside other points: more than the 10 % that predictions are held to."""


def name(row: dict[str, Any]) -> str:
    """The spec, with the head and the seed where there is one."""
    facts = [f"head {short(row['head_digest'])}"] if row.get("head_digest") else []
    facts += [f"seed {row['seed']}"] if row.get("seed") is not None else []
    return f"{row['spec']} ({', '.join(facts)})" if facts else str(row["spec"])


def verdict(rows: list[dict[str, Any]]) -> str:
    """One paragraph: the fastest point if its advantage is real, else what stands in the way.

    An advantage is real when the 95 % interval of the speed-up, resampled over prompts, lies above 1. Speeds that were
    timed too briefly are said to be so.
    """
    return " ".join(filter(None, [_choice(rows), _brief(rows), *_slower(rows)]))


def _brief(rows: list[dict[str, Any]]) -> str:
    """Rows of before steady_s was kept say nothing."""
    timed = [r for r in rows if r.get("speedup") is not None and r.get("steady_s") is not None]
    shortest = min(timed, key=lambda r: r["steady_s"], default=None)
    if shortest is None or shortest["steady_s"] >= BRIEF_S:
        return ""
    return (
        f"Do not choose by these speeds: {name(shortest)} was timed over {number(shortest['steady_s'], 1)} s with all "
        "slots busy, and two timings that short differ by far more than their intervals. Raise suite.limit (more "
        f"prompts) or suite.max_new_tokens until every point takes {BRIEF_S:.0f} s."
    )


def _slower(rows: list[dict[str, Any]]) -> list[str]:
    """For each head, whether the machine was slower for some of its points. Plain decoding has another prompt pass."""
    by_head: dict[Any, list[dict[str, Any]]] = {}
    for r in rows:
        if r["spec"] != "none" and pace(r):
            by_head.setdefault(r["head_digest"], []).append(r)
    found = []
    for own in by_head.values():
        paces = [pace(r) or 0.0 for r in own]
        least, most = (own[paces.index(pick(paces))] for pick in (min, max))
        if (ratio := max(paces) / min(paces)) > PACE:
            compare = "" if steady(own) else "Compare the undisturbed tok/s of the break-even table, or "
            found.append(
                f"The machine was not equally fast: {number(ratio)} x slower while {name(most)} was timed than while "
                f"{name(least)} was. {compare or 'To choose between such points, '}free the machine, "
                f"remove measurements/{most['measurement']} under paths.outputs and run again."
            )
    return found


def _choice(rows: list[dict[str, Any]]) -> str:
    measured = [r for r in rows if r["spec"] != "none"]
    if not measured:
        return "Only plain decoding was measured: there is no spec point to choose."
    compared = [r for r in measured if r.get("speedup") is not None]
    if not compared:
        longest = max(measured, key=lambda r: r["accept_length"])
        why = (
            "Nothing was timed (suite.timed=false)"
            if all(r.get("tok_s") is None for r in measured)
            else "No baseline was measured (a server that already runs has none)"
        )
        return (
            f"{why}, so no speed-up is known. {name(longest)} has the longest accept length, "
            f"{number(longest['accept_length'])}."
        )
    best = max(compared, key=lambda r: r["speedup"])
    if best["speedup"] <= 1:
        return _baseline_wins(best)
    between = interval(best["speedup_low"], best["speedup_high"])
    if best["speedup_low"] is None or best["speedup_low"] <= 1:
        return (
            f"Undecided: {name(best)} is the fastest at {number(best['speedup'])} x plain decoding, but its 95 % "
            f"interval over prompts ({between}) does not exclude 1. Use more prompts before choosing it."
        )
    return (
        f"Use {name(best)}: {number(best['speedup'])} x plain decoding ({number(best['tok_s'], 1)} against "
        f"{number(best['baseline_tok_s'], 1)} tok/s; 95 % over prompts {between}), the fastest of "
        f"{len(compared)} point(s) at accept length {number(best['accept_length'])}. One verify round costs as much as "
        f"{number(best['break_even_accept_length'])} plain tokens, so it pays above that accept length."
        + _ties(best, compared)
    )


def _baseline_wins(best: dict[str, Any]) -> str:
    wanted = number(best["break_even_accept_length"])
    return (
        f"No speculation is fastest here: the best point, {name(best)}, runs at {number(best['speedup'])} x plain "
        f"decoding ({number(best['tok_s'], 1)} against {number(best['baseline_tok_s'], 1)} tok/s). Its verify round "
        f"costs as much as {wanted} plain tokens, so {best['num_draft_tokens']} draft tokens would need accept length "
        f"{wanted} to break even; measured is {number(best['accept_length'])}."
    )


def _ties(best: dict[str, Any], compared: list[dict[str, Any]]) -> str:
    near = [
        name(r)
        for r in compared
        if r is not best and r["speedup_high"] is not None and r["speedup_high"] >= best["speedup_low"]
    ]
    return f" Within its interval: {', '.join(near)}." if near else ""
