"""Accept length, speed and speed-up against the draft tokens or the requests in flight, one line per head and spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import Any

from eagle_lab.config.files import replacing
from eagle_lab.report.table import short

Row = dict[str, Any]
TOKENS = ("num_draft_tokens", "draft tokens verified per round")
CONCURRENCY = ("concurrency", "requests in flight")
MEASURES = {
    "accept_length": "accept length (tokens per verify step)",
    "tok_s": "tokens per second",
    "speedup": "speed-up (tok/s over that of plain decoding)",
}
LINES = 8
"""In one plot; the title says when there are more."""


def against_tokens(rows: list[Row], title: str, directory: Path, suffix: str = "") -> list[Path]:
    """Writes accept_length and tok_s PNGs of rows that share a condition."""
    return [
        _plot(rows, directory / f"{name}{suffix}.png", TOKENS, name, _by_shape, title)
        for name in ("accept_length", "tok_s")
    ]


def against_concurrency(rows: list[Row], title: str, directory: Path, suffix: str = "") -> list[Path]:
    """Writes accept_length, tok_s and speedup PNGs of rows whose conditions differ in concurrency alone."""
    return [
        _plot(rows, directory / f"{name}_concurrency{suffix}.png", CONCURRENCY, name, _by_spec, title)
        for name in ("accept_length", "tok_s", "speedup")
    ]


def _by_shape(row: Row) -> str:
    shape = "chain" if row["eagle_topk"] == 1 else f"tree, topk {row['eagle_topk']}, {row['num_steps']} steps"
    return f"{shape}, head {short(row['head_digest'])}"


def _by_spec(row: Row) -> str:
    return f"{row['spec']}, head {short(row['head_digest'])}"


def _interval(row: Row, column: str) -> tuple[float, float] | None:
    """95 % over prompts; that of tok/s is the speed-up's, at the baseline's tok/s."""
    name, scale = ("speedup", row.get("baseline_tok_s")) if column == "tok_s" else (column, 1.0)
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return None if low is None or high is None or scale is None else (low * scale, high * scale)


def bars(points: list[Row], column: str) -> list[list[float]] | None:
    """What matplotlib takes for the intervals of a column: below and above each value; None where one is not known."""
    found = [_interval(r, column) for r in points]
    if None in found:
        return None
    ends = [(r[column], *i) for r, i in zip(points, found, strict=True) if i]
    # an interval need not contain the estimate, and error bars may not be negative
    return [[max(0.0, v - low) for v, low, _ in ends], [max(0.0, high - v) for v, _, high in ends]]


def _plot(
    rows: list[Row], path: Path, along: tuple[str, str], column: str, named: Callable[[Row], str], title: str
) -> Path:
    # a canvas of one's own: pyplot, savefig and a layout engine would each draw the figure once more
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    x, label = along
    lines: dict[str, list[Row]] = {}
    for r in rows:
        if r["spec"] != "none" and r.get(column) is not None:
            lines.setdefault(named(r), []).append(r)
    drawn = sorted(lines, key=lambda name: -max(r[column] for r in lines[name]))[:LINES]
    if len(drawn) < len(lines):
        title += f"; the {LINES} of {len(lines)} lines that reach highest"
    canvas = FigureCanvasAgg(Figure(figsize=(7, 4.5), dpi=120))
    axes = canvas.figure.add_axes((0.1, 0.11, 0.87, 0.79))
    for name in (n for n in lines if n in drawn):
        points = lines[name]
        values = [r[column] for r in points]
        axes.errorbar([r[x] for r in points], values, yerr=bars(points, column), marker="o", capsize=3, label=name)
    baseline = [r for r in rows if r["spec"] == "none" and r.get(column) is not None]
    if along is TOKENS:
        for r in baseline:
            axes.axhline(r[column], color="grey", linestyle="--", label="no speculation")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axes.plot([r[x] for r in baseline], [r[column] for r in baseline], "--", color="grey", label="no speculation")
        axes.set_xscale("log", base=2)
        ticks = sorted({r[x] for r in rows})
        axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.set_title("\n".join(wrap(title, 90)), fontsize="small")
    axes.set_xlabel(label)
    axes.set_ylabel(MEASURES[column])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if lines or baseline:
        axes.legend(fontsize="small")
    with replacing(path) as aside:
        canvas.print_png(aside)
    return path
