"""Rows that differ only in the seed of sampling: pooled into one, and how far they lie apart."""

from __future__ import annotations

from itertools import zip_longest
from statistics import stdev
from typing import Any, Protocol

from eagle_lab.report.table import link, number, short, with_interval

Row = dict[str, Any]
SPEEDUP = ("baseline_tok_s", "speedup", "speedup_low", "speedup_high", "break_even_accept_length")


class Interval(Protocol):
    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


class Statistics(Protocol):
    """What a report computes anew, evaluate.intervals; passed in, since a report reads rows and nothing else."""

    def accept_length(self, prompts: dict[str, list[float]]) -> Interval: ...
    def accept_length_difference(self, a: dict[str, list[float]], b: dict[str, list[float]]) -> Interval: ...
    def speedup(self, a: Row, b: Row) -> Interval: ...


def pooled(rows: list[Row], statistics: Statistics) -> list[Row]:
    """One row per head and spec point of rows that share a condition: over all its seeds, in table order.

    A row without a twin is left as it is. A pooled one has accept length, tok_s and speed-up, with their intervals, of
    its seeds' requests together (a prompt asked with three seeds is still one prompt), `survival` likewise, `seeds`
    and their rows' `fingerprints`, and the standard deviation between them, accept_length_deviation and
    tok_s_deviation.
    """
    twins: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        # nothing is drawn at temperature 0: rows of one point are no repeats of each other there
        only = row["fingerprint"] if row.get("seed") is None else None
        twins.setdefault((row.get("head_digest"), row["spec"], only), []).append(row)
    merged = [_merged(same, statistics) if len(same) > 1 else same[0] for same in twins.values()]
    baselines = {tuple(r["seeds"]): r for r in merged if r["spec"] == "none" and "seeds" in r}
    return [_against(row, baselines.get(tuple(row["seeds"])), statistics) if "seeds" in row else row for row in merged]


def spread(points: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and cells: the pooled numbers of `pooled` rows with several seeds, and the seeds' deviation."""
    header = ["spec", "head", "seeds", "accept length", "deviation between seeds", "tok/s", "deviation between seeds"]
    cells = []
    for r in (r for r in points if "seeds" in r):
        length = with_interval(r, "accept_length", "accept_length_low", "accept_length_high")
        deviations = [number(r[f"{name}_deviation"], 3) for name in ("accept_length", "tok_s")]
        seeds = " ".join(link(str(s), f) for s, f in zip(r["seeds"], r["fingerprints"], strict=True))
        point = [r["spec"], short(r.get("head_digest")), seeds]
        cells.append([*point, length, deviations[0], number(r["tok_s"], 1), deviations[1]])
    return header, cells


def _merged(same: list[Row], statistics: Statistics) -> Row:
    of_prompt = ((p, [r["prompts"][p] for r in same]) for p in same[0]["prompts"])
    prompts = {p: [sum(column) for column in zip(*counts, strict=True)] for p, counts in of_prompt}
    row = {**same[0], "seed": None, "seeds": [r["seed"] for r in same], "prompts": prompts}
    row["fingerprints"] = [r["fingerprint"] for r in same]
    row |= {"accept_length_deviation": stdev(r["accept_length"] for r in same), "tok_s_deviation": None}
    if all(r["tok_s"] is not None for r in same):
        row["tok_s_deviation"] = stdev(r["tok_s"] for r in same)
        # as if the seeds had been asked one after the other
        tokens = [sum(counts[2] for counts in r["prompts"].values()) for r in same]
        row["tok_s"] = sum(tokens) / sum(n / r["tok_s"] for n, r in zip(tokens, same, strict=True))
    if row["spec"] != "none":
        length = statistics.accept_length(prompts)
        row |= {"accept_length": length.value, "accept_length_low": length.low, "accept_length_high": length.high}
        steps = [sum(counts[1] for counts in r["prompts"].values()) for r in same]
        deep = zip_longest(*(r["survival"] for r in same), fillvalue=0.0)
        row["survival"] = [sum(s * n for s, n in zip(at, steps, strict=True)) / sum(steps) for at in deep]
    return row


def _against(row: Row, baseline: Row | None, statistics: Statistics) -> Row:
    """The pooled row with its speed-up over the baseline of the same seeds; without one there is no speed-up."""
    if baseline is None or row["tok_s"] is None:
        return row | dict.fromkeys(SPEEDUP)
    ratio = statistics.speedup(row, baseline)
    base, own = baseline["tok_s"], row["tok_s"]
    values = (base, own / base, ratio.low, ratio.high, row["accept_length"] * base / own)
    return row | dict(zip(SPEEDUP, values, strict=True))
