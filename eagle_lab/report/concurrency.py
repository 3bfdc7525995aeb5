"""One spec at several concurrencies: what speculation gains while the server is idle and loses when it is full."""

from __future__ import annotations

from typing import Any

from eagle_lab.report.load import condition
from eagle_lab.report.table import link, markdown, number, short


def families(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows whose conditions differ in concurrency alone, of the conditions that were measured at more than one."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(condition({**row, "concurrency": None}), []).append(row)
    return [family for family in found.values() if len({r["concurrency"] for r in family}) > 1]


def table(family: list[dict[str, Any]]) -> str:
    """Markdown: tok/s and speed-up, one line per spec and head, one column per concurrency, each linked to its row."""
    levels = sorted({r["concurrency"] for r in family})
    lines: dict[tuple[str, str], dict[int, list[str]]] = {}
    for r in family:
        speedup = "" if r["spec"] == "none" or r.get("speedup") is None else f" ({number(r['speedup'])} x)"
        cell = link(number(r["tok_s"], 1) + speedup, r["fingerprint"])
        line = lines.setdefault((r["spec"], short(r.get("head_digest"))), {})
        line.setdefault(r["concurrency"], []).append(cell)
    cells = [[*name, *(", ".join(line.get(c, ["-"])) for c in levels)] for name, line in lines.items()]
    return markdown(["spec", "head", *(f"{c} in flight: tok/s (speed-up)" for c in levels)], cells)
