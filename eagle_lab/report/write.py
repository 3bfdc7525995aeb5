"""summary.csv, report.md and plots/ of a sweep or run: a pure function of its rows."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from eagle_lab.config.files import write_text
from eagle_lab.report import break_even, concurrency
from eagle_lab.report.diagnosis import alarm, note, promises
from eagle_lab.report.load import Results, condition, load
from eagle_lab.report.plots import against_concurrency, against_tokens
from eagle_lab.report.scaling import against_data
from eagle_lab.report.seeds import Row, Statistics, pooled, spread
from eagle_lab.report.table import (
    along,
    categories,
    columns,
    csv_text,
    interval,
    link,
    linked,
    markdown,
    number,
    positions,
    short,
    show,
)
from eagle_lab.report.verdict import name, verdict

LEGEND = (
    "Accept length: 1 + correct drafts / verify steps, pooled over all requests; in brackets its 95 % interval over "
    "prompts. tok/s: completion tokens per second of wall time while all request slots are busy. Speed-up: tok/s over "
    "that of plain decoding with the same suite, concurrency and server; its interval is that of the same ratio, both "
    "resampled by the same prompts, and does not hold the machine's own variation. Break-even at: the accept length at "
    "which this point would run as fast as plain decoding. Differing prompts: greedy answers that are not those of "
    "plain decoding, token for token. Every spec that is a link leads to the row that its numbers come from."
)
PREDICTION = (
    "Plain step and round (draft, then verify) are wall times for all requests in flight, their share of prefill "
    "included: concurrency x accept length / tok/s. A cost model (fixed + draft steps + tokens to verify, no cost "
    "below zero) is fitted to them per head, relative to what a lone prompt took while the point was timed, since the "
    "machine is not equally fast at all times. Behind each measured point stands what the model says when fitted "
    'WITHOUT that point: its accept length from the next deeper chain ("as measured" where no other chain is as '
    'deep, and for trees), its tok/s, and the error against the measured tok/s. "-": the other points do not determine '
    'it; a chain needs two other chains, a tree other trees too. "extrapolated": fewer or more draft tokens than any '
    "of them, or more draft steps."
)
FEW, DRAWN = 12, 2
"""So many conditions all get plots and comparisons; of more, only the first two. A plot takes about 0.1 s."""
SHOWN = 10
"""Conditions that the terminal gets; report.md has all."""
COMPARED = 200
"""Pairs that a report compares; one takes about 0.01 s."""


@dataclass(frozen=True)
class Group:
    """What was measured under one condition."""

    rows: list[Row]
    points: list[Row]
    """The rows with their seeds pooled."""

    @cached_property
    def heads(self) -> list[break_even.Head]:
        return break_even.heads(self.points)

    @cached_property
    def verdict(self) -> str:
        return " ".join(filter(None, [verdict(self.points), break_even.faster_chain(self.heads)]))

    @property
    def title(self) -> str:
        return conditions(self.rows[0])

    @property
    def remarks(self) -> list[str]:
        return [said for r in self.rows for said in [*alarm(r), note(r)] if said]


def report(directory: Path, statistics: Statistics) -> Path:
    """Writes and prints the report of `directory`; returns report.md. LabError when there is nothing to report."""
    with _no_garbage():
        results = load(directory)
        groups = [Group(rows, pooled(rows, statistics)) for rows in grouped(results.rows)]
        write_text(directory / "summary.csv", csv_text(_with_predictions(results.rows, groups)))
        write_text(directory / "report.md", markdown_text(results, groups, directory, statistics))
    for i, group in enumerate(groups):
        if i < SHOWN:
            show(group.rows, group.title)
            _say(group.verdict)
        for said in group.remarks:
            _say(said)
    if len(groups) > SHOWN:
        _say(f"{len(groups) - SHOWN} more conditions are in report.md.")
    for point, state, reason in results.failed:
        _say(f"{state.upper()}: {point}: {reason}")
    _say(f"report: {directory / 'report.md'}")
    return directory / "report.md"


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Rows stay, so the search for garbage among them is in vain; it took 0.9 of 5.8 s for 10,000 rows."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _with_predictions(rows: list[Row], groups: list[Group]) -> list[Row]:
    """Pooled points are no row of their own, and their predictions stand in report.md alone."""
    own = {r["fingerprint"] for g in groups for r in g.points if "seeds" not in r}
    more = {name: values for g in groups for head in g.heads for name, values in break_even.derived(head).items()}
    return [{**r, **more.get(r["fingerprint"], {})} if r["fingerprint"] in own else r for r in rows]


def _say(line: str) -> None:
    from rich.console import Console

    Console().print(line, markup=False, highlight=False, soft_wrap=True)


def grouped(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows by condition: only those of one group can be compared."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(condition(row), []).append(row)
    return list(groups.values())


def conditions(row: Row, concurrency: str = "") -> str:
    """Heading of rows that share a condition; `concurrency` replaces theirs."""
    few = row.get("in_flight") or row["concurrency"]
    few = f" ({few} in flight: the suite has no more conversations)" if few < row["concurrency"] else ""
    return (
        f"{row['target']}, suite {row['suite']} ({row['suite_digest'][:8]}), "
        f"concurrency {concurrency or row['concurrency']}{'' if concurrency else few}, "
        f"temperature {row['temperature']}, {row['max_new_tokens']} new tokens, server {row['server_kind']} "
        f"{row['dtype']}, sglang {row['sglang_version']}, {row['hardware']}"
    )


def markdown_text(results: Results, groups: list[Group], directory: Path, statistics: Statistics) -> str:
    """report.md; draws its plots into directory/plots on the way."""
    parts = [f"# {results.name}", LEGEND] if groups else [f"# {results.name}"]
    if any(g.heads for g in groups):
        parts.append(PREDICTION)
    full = len(groups) if len(groups) <= FEW else DRAWN
    if full < len(groups):
        parts.append(
            f"Plots are drawn, and points compared, for the first {full} of {len(groups)} conditions; summary.csv has "
            "all numbers."
        )
    pairs = COMPARED
    for i, group in enumerate(groups, 1):
        rows, points = group.rows, group.points
        parts += [f"## {group.title}", f"**{group.verdict}**", markdown(*linked(columns(rows), rows))]
        if i <= full:
            parts += _pictures(against_tokens, points, group.title, directory, i)
        parts += break_even.section(group.heads)
        sections = {
            "Seeds pooled": spread(points),
            "Against the data trained on": against_data(points),
            "Acceptance by draft position": positions(rows),
            "Accept length by category": categories(rows),
            "Accept length along the answer": along(rows),
            "Promised and served": promises(rows),
            "Greedy answers that differ from plain decoding": _divergences(rows),
        }
        for title, (header, cells) in sections.items():
            if cells:
                parts += [f"### {title}", markdown(header, cells)]
        if i <= full:
            compared, pairs = _compared(points, statistics, pairs)
            parts += compared
        parts += group.remarks
    parts += _concurrencies([p for g in groups for p in g.points], directory, full // 2)
    if results.failed:
        cells = [
            [f"`{point}`", state, " ".join(why.split()).replace("|", "\\|")] for point, state, why in results.failed
        ]
        parts += ["## Points without a result", markdown(["point", "state", "reason"], cells)]
    parts += _origin(results)
    return "\n\n".join(parts) + "\n"


def _pictures(draw: Callable[..., list[Path]], rows: list[Row], title: str, directory: Path, number: int) -> list[str]:
    paths = draw(rows, title, directory / "plots", f"_{number}" if number > 1 else "")
    return [f"![]({path.relative_to(directory).as_posix()})" for path in paths]


def _concurrencies(rows: list[Row], directory: Path, drawn: int) -> list[str]:
    parts: list[str] = []
    families = concurrency.families(rows)
    for i, family in enumerate(families, 1):
        levels = ", ".join(str(c) for c in sorted({r["concurrency"] for r in family}))
        title = conditions(family[0], levels)
        parts += [f"## Against concurrency: {title}", concurrency.table(family)]
        if i <= drawn:
            parts += _pictures(against_concurrency, family, title, directory, i)
    if drawn < len(families):
        parts.append(f"Plots are drawn for the first {drawn} of these {len(families)} tables.")
    return parts


def _compared(points: list[Row], statistics: Statistics, limit: int) -> tuple[list[str], int]:
    """Heads at one spec with each other, and the specs of one head with its fastest; paired by prompt.

    Returns the section, with at most `limit` pairs, and how many pairs remain for others.
    """
    cells = []
    pairs = _pairs([r for r in points if r["spec"] != "none"])
    for a, b in islice(pairs, limit):
        timed = a["tok_s"] is not None and b["tok_s"] is not None
        length = statistics.accept_length_difference(a["prompts"], b["prompts"])
        speed = statistics.speedup(a, b) if timed else None
        found = [f"{number(x.value)} ({interval(x.low, x.high)})" if x else "-" for x in (length, speed)]
        cells.append([link(name(a), a["fingerprint"]), link(name(b), b["fingerprint"]), *found])
    section = [markdown(["a", "b", "accept length, a - b", "tok/s, a / b"], cells)] if cells else []
    if next(pairs, None):
        section.append(f"More pairs are not compared: a report compares {COMPARED} in all.")
    return ["### Compared", *section] if section else [], limit - len(cells)


def _pairs(points: list[Row]) -> Iterator[tuple[Row, Row]]:
    by_spec: dict[str, list[Row]] = {}
    by_head: dict[str, list[Row]] = {}
    for r in points:
        by_spec.setdefault(r["spec"], []).append(r)
        by_head.setdefault(r["head_digest"], []).append(r)
    for same in by_spec.values():
        yield from combinations(same, 2)
    for own in by_head.values():
        fastest = max(own, key=lambda r: r.get("tok_s") or 0)
        yield from ((r, fastest) for r in own if r["spec"] != fastest["spec"])


def _divergences(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    header = ["spec", "head", "prompt", "turn", "token", "plain decoding", "this point"]
    header += ["gap in ulps", "furthest of plain decoding"]
    cells = []
    for r in rows:
        for d in r.get("divergences") or []:
            at = (str(d[k]) for k in ("turn", "position", "expected", "found"))
            point = [link(r["spec"], r["fingerprint"]), short(r["head_digest"])]
            gaps = (number(gap, 1) for gap in (d.get("gap_ulps"), r.get("plain_gap_ulps")))
            cells.append([*point, str(d["prompt"]), *at, *gaps])
    return header, cells


def _origin(results: Results) -> list[str]:
    """Where every number comes from and how to get it again."""
    cells = [
        [
            f'<a id="row-{r["fingerprint"]}"></a>{r["spec"]}',
            short(r.get("head_digest")),
            f"`{r['fingerprint']}`",
            f"`measurements/{r['measurement']}`",
            f"`{r['probe']}`" if r.get("probe") else "-",
            str((r.get("provenance") or {}).get("git_sha") or "-")[:12],
        ]
        for r in results.rows
    ]
    header = ["spec", "head", "fingerprint", "directory under paths.outputs", "proof", "commit"]
    parts = ["## Where the numbers come from", markdown(header, cells)] if cells else []
    how = "Each measurement's directory holds its row, its requests with token ids, the server's log and /server_info."
    if results.command:
        how += f"\n\nTo reproduce, run again (finished points are kept):\n\n    {shlex.join(results.command)}"
    else:
        commands = sorted({shlex.join(a) for r in results.rows if (a := (r.get("provenance") or {}).get("argv"))})
        how += "\n\nThe rows were made by:\n\n" + "\n".join(f"    {c}" for c in commands)
    return [*parts, how]
