"""Accept length against the data that heads were trained on, where a sweep varies trainer.max_tokens alone.

Of the drafts of a round that could be right a share is not: 1 - (accept length - 1) / steps. That share is fitted as a
power of the supervised tokens, as losses are (Kaplan et al. 2020, arXiv 2001.08361): a line in logarithms by least
squares. A head's size and the target's own uncertainty bound it from below, which a power does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from eagle_lab.report.table import link, number, with_interval

FURTHER = 4
"""The fit is asked for so many times the most data."""
NEEDED = 3
"""Sizes: two make a line, and none is left to tell whether it is one."""
SIZE = re.compile(r"trainer\.max_tokens=(\d+)")


def against_data(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of rows that share a condition; no cells without NEEDED sizes of one spec."""
    by_spec: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        if (size := SIZE.fullmatch(row.get("trained_with") or "")) and row["accept_length"] < row["num_steps"] + 1:
            by_spec.setdefault(row["spec"], {})[int(size[1])] = row
    cells = []
    for spec, points in by_spec.items():
        if len(points) < NEEDED:
            continue
        sizes = sorted(points)
        steps = points[sizes[0]]["num_steps"]
        fit = fitted(sizes, [points[n]["accept_length"] for n in sizes], steps)
        for n in [*sizes, FURTHER * sizes[-1]]:
            if found := points.get(n):
                seen = with_interval(found, "accept_length", "accept_length_low", "accept_length_high")
                cells.append([link(spec, found["fingerprint"]), f"{n:,}", seen, number(fit(n))])
            else:
                cells.append([f"{spec}, not measured", f"{n:,}", "-", number(fit(n))])
    return ["spec", "supervised tokens", "accept length", "by the fit"], cells


def fitted(sizes: list[int], accept_lengths: list[float], steps: int) -> Callable[[float], float]:
    """Accept length by supervised tokens, as fitted to these points of one spec with so many draft steps."""
    shares = [1 - (a - 1) / steps for a in accept_lengths]
    power, factor = map(float, np.polyfit(np.log(sizes), np.log(shares), 1))
    return lambda tokens: float(1 + steps * (1 - np.exp(factor) * tokens**power))
