"""`python -m tests.doc_figures`: draws the figures of docs/ anew from the rows in docs/results.

A figure states the digest of its rows in its metadata, so that a test sees one that is older than they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle_lab.config.digest import digest
from eagle_lab.report.plots import bars
from eagle_lab.report.scaling import fitted
from tests.doc_tables import ROOT, chosen

Row = dict[str, Any]
FIGURES = ROOT / "docs/figures"
FURTHER = 64_000_000


def rows_of(name: str) -> list[Row]:
    """The rows that a figure is drawn from."""
    if name == "draft_tokens":
        return chosen("h200.jsonl", what="draft_tokens")
    names = ["data_size"] if name == "data_size" else ["aux_layers", "unroll_length", "loss"]
    return [row | {"figure_sweep": sweep} for sweep in names for row in chosen("h200.jsonl", sweep=sweep)]


def stated(file: Path) -> str | None:
    """The digest of the rows that a drawn figure is of."""
    found = re.search(r"rows ([0-9a-f]{16})", file.read_text(encoding="utf-8"))
    return found[1] if found else None


def draft_tokens(axes: np.ndarray, rows: list[Row]) -> None:
    """Accept length and speed-up against the draft tokens, a colour per number of requests in flight."""
    for colour, in_flight in enumerate((1, 8, 32)):
        for marker, style, chain in (("o", "-", True), ("^", "none", False)):
            points = [r for r in rows if r["concurrency"] == in_flight and r["spec"] != "none"]
            points = [r for r in points if (r["eagle_topk"] == 1) is chain]
            label = f"{in_flight} in flight, {'chains' if chain else 'trees'}"
            for at, column in zip(axes, ("accept_length", "speedup"), strict=True):
                _points(at, [r["num_draft_tokens"] for r in points], points, column, label, f"C{colour}", marker, style)
    axes[0].set_ylabel("accept length")
    axes[1].set_ylabel("tok/s over that of plain decoding")
    axes[1].axhline(1, color="grey", linestyle="--")
    for at in axes:
        at.set_xlabel("draft tokens verified per round")
        at.set_xticks([2, 3, 4, 5, 6, 8, 12, 16, 24])
    axes[1].legend(fontsize="x-small", ncols=2)


def data_size(axes: np.ndarray, rows: list[Row]) -> None:
    """Accept length against the supervised tokens, with the fitted power of all and of all but the largest."""
    (at,) = axes
    sizes, steps = [r["supervised_tokens"] for r in rows], rows[0]["num_steps"]
    _points(at, sizes, rows, "accept_length", "served, MT-Bench", "C0", "o", "none")
    promised = [r["proxy_accept_length"] for r in rows]
    at.plot(sizes, promised, "x", color="C1", label="held out, drafted by the training's own passes")
    seen = [r["accept_length"] for r in rows]
    wanted = np.geomspace(sizes[0], FURTHER, 50)
    for style, count in (("-", len(rows)), (":", len(rows) - 1)):
        fit = fitted(sizes[:count], seen[:count], steps)
        label = f"fitted to {count} sizes: {fit(FURTHER):.2f} at 64 M"
        at.plot(wanted, [fit(n) for n in wanted], style, color="C0", label=label)
    at.set_xscale("log", base=2)
    ticks = [1, 2, 4, 8, 16, 64]
    at.set_xticks([t * 10**6 for t in ticks], [f"{t} M" for t in ticks])
    at.set_xlabel("supervised tokens, three epochs")
    at.set_ylabel("accept length, three draft steps")
    at.legend(fontsize="x-small")


def heads(axes: np.ndarray, rows: list[Row]) -> None:
    """Accept length of heads that differ in one setting."""
    (at,) = axes
    names = []
    for place, row in enumerate(rows):
        default = row["override"].startswith("trainer.max_tokens")
        colour = "grey" if default else f"C{['aux_layers', 'unroll_length', 'loss'].index(row['figure_sweep'])}"
        at.errorbar(
            [row["accept_length"]], [-place], xerr=bars([row], "accept_length"), fmt="o", color=colour, capsize=3
        )
        usual = {"aux_layers": "aux=low_mid_high", "unroll_length": "loss.unroll_steps=5", "loss": "loss=soft_ce"}
        names.append(usual[row["figure_sweep"]] if default else row["override"])
    at.set_yticks([-n for n in range(len(rows))], names, fontsize="small")
    at.set_xlabel("MT-Bench accept length (grey: one head)")


def _points(
    at: Axes, x: list[int], rows: list[Row], column: str, label: str, colour: str, marker: str, style: str
) -> None:
    values = [r[column] for r in rows]
    at.errorbar(
        x, values, yerr=bars(rows, column), label=label, color=colour, marker=marker, linestyle=style, capsize=3
    )


DRAWN: dict[str, tuple[int, Callable[[np.ndarray, list[Row]], None]]] = {
    "draft_tokens": (2, draft_tokens),
    "data_size": (1, data_size),
    "heads": (1, heads),
}
"""Name -> panels, and what fills them."""


def draw(name: str) -> Path:
    panels, fill = DRAWN[name]
    rows = rows_of(name)
    # text as text, and ids that are the same each time
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure = Figure(figsize=(5.5 * panels, 3.8), layout="constrained")
        axes = np.atleast_1d(figure.subplots(1, panels))
        fill(axes, rows)
        for at in axes:
            at.grid(alpha=0.3)
        file = FIGURES / f"{name}.svg"
        figure.savefig(file, metadata={"Date": None, "Description": f"docs/results/h200.jsonl, rows {digest(rows)}"})
    return file


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    for each in DRAWN:
        draw(each)
