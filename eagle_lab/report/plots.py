"""Accept length and speed against the draft tokens, one line per head and tree width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.files import replacing
from eagle_lab.report.table import short


def plots(rows: list[dict[str, Any]], directory: Path, suffix: str = "") -> list[Path]:
    """Writes accept_length and tok_s PNGs of rows that share a condition."""
    import matplotlib as mpl

    mpl.use("Agg")
    return [
        _plot(
            rows, directory / f"accept_length{suffix}.png", "accept_length", "accept length (tokens per verify step)"
        ),
        _plot(rows, directory / f"tok_s{suffix}.png", "tok_s", "tokens per second"),
    ]


def _lines(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    lines: dict[str, list[dict[str, Any]]] = {}
    for r in rows:
        if r["spec"] != "none":
            shape = "chain" if r["eagle_topk"] == 1 else f"tree, topk {r['eagle_topk']}, {r['num_steps']} steps"
            lines.setdefault(f"{shape}, head {short(r['head_digest'])}", []).append(r)
    return lines


def _plot(rows: list[dict[str, Any]], path: Path, column: str, title: str) -> Path:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, points in _lines(rows).items():
        x, y = [r["num_draft_tokens"] for r in points], [r[column] for r in points]
        errors = None
        if column == "accept_length" and all(r["accept_length_low"] is not None for r in points):
            # a percentile interval need not contain the estimate; error bars may not be negative
            below = [max(0.0, r[column] - r["accept_length_low"]) for r in points]
            errors = [below, [max(0.0, r["accept_length_high"] - r[column]) for r in points]]
        axes.errorbar(x, y, yerr=errors, marker="o", capsize=3, label=name)
    for baseline in (r for r in rows if r["spec"] == "none"):
        axes.axhline(baseline[column], color="grey", linestyle="--", label="no speculation")
    axes.set_xlabel("draft tokens verified per round")
    axes.set_ylabel(title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    with replacing(path) as aside:
        figure.savefig(aside, format="png", dpi=120)
    plt.close(figure)
    return path
