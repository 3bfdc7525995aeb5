"""summary.csv, report.md and plots/ of a sweep or run: a pure function of its rows."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from eagle_lab.config.files import write_text
from eagle_lab.report import break_even, concurrency
from eagle_lab.report.diagnosis import alarm, note, promises
from eagle_lab.report.load import Results, condition, load
from eagle_lab.report.plots import against_concurrency, against_tokens
from eagle_lab.report.table import columns, csv_text, interval, link, markdown, number, positions, short, show
from eagle_lab.report.verdict import verdict

LEGEND = (
    "Accept length: 1 + correct drafts / verify steps, pooled over all requests; in brackets its 95 % interval over "
    "prompts. tok/s: completion tokens per second of wall time while all request slots are busy. Speed-up: tok/s over "
    "that of plain decoding with the same suite, concurrency and server; its interval is that of the speed per "
    "request, paired by prompt, and does not hold the machine's own variation. Break-even at: the accept length at "
    "which this point would run as fast as plain decoding. Differing prompts: greedy answers that are not those of "
    "plain decoding, token for token. Every spec that is a link leads to the row that its numbers come from."
)
PREDICTION = (
    "Plain step and round (draft, then verify) are wall times for all requests in flight, their share of prefill "
    "included: concurrency x accept length / tok/s. A cost model (fixed + draft steps + tokens to verify, no cost "
    "below zero) is fitted to them per head. Behind each measured point stands what the model says when fitted WITHOUT "
    'that point: its accept length from the deepest other chain ("as measured" where no other chain is as deep, and '
    'for trees), its tok/s, and the error against the measured tok/s. "-": the other points do not determine it; a '
    'chain needs two other chains, a tree other trees too. "extrapolated": fewer or more draft tokens than any of '
    "them."
)
FEW, DRAWN = 12, 3
"""So many conditions all get plots; of more, only the first three, since a plot takes about 0.1 s."""
SHOWN = 10
"""Conditions that the terminal gets; report.md has all."""
COMPARED = 100
"""Pairs of heads that are compared; a paired bootstrap takes about 0.01 s."""

Compare = Callable[[dict[str, Any], dict[str, Any]], tuple[float, float | None, float | None]]
"""(row, row) of the same prompts -> difference in accept length and its interval."""


def report(directory: Path, compare: Compare | None = None) -> Path:
    """Writes and prints the report of `directory`; returns report.md. LabError when there is nothing to report.

    compare: how two heads at one spec are compared; without it that section is left out.
    """
    with _no_garbage():
        return _report(directory, compare)


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


def _report(directory: Path, compare: Compare | None) -> Path:
    results = load(directory)
    groups = [Group(rows) for rows in grouped(results.rows)]
    more = {name: values for g in groups for head in g.heads for name, values in break_even.derived(head).items()}
    write_text(directory / "summary.csv", csv_text([{**r, **more.get(r["fingerprint"], {})} for r in results.rows]))
    write_text(directory / "report.md", markdown_text(results, groups, directory, compare))
    for i, group in enumerate(groups):
        if i < SHOWN:
            show(group.rows, conditions(group.rows[0]))
            _say(group.verdict)
        for row in group.rows:
            for line in [*alarm(row), note(row)]:
                if line:
                    _say(line)
    if len(groups) > SHOWN:
        _say(f"{len(groups) - SHOWN} more conditions are in report.md.")
    for point, state, reason in results.failed:
        _say(f"{state.upper()}: {point}: {reason}")
    _say(f"report: {directory / 'report.md'}")
    return directory / "report.md"


@dataclass(frozen=True)
class Group:
    """Rows of one condition and what is said of them."""

    rows: list[dict[str, Any]]

    @cached_property
    def heads(self) -> list[break_even.Head]:
        return break_even.heads(self.rows)

    @cached_property
    def verdict(self) -> str:
        return " ".join(filter(None, [verdict(self.rows), break_even.faster_chain(self.heads)]))


def _say(line: str) -> None:
    from rich.console import Console

    Console().print(line, markup=False, highlight=False, soft_wrap=True)


def grouped(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows by condition: only those of one group can be compared."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(condition(row), []).append(row)
    return list(groups.values())


def conditions(row: dict[str, Any], concurrency: str = "") -> str:
    """Heading of rows that share a condition; `concurrency` replaces theirs."""
    return (
        f"{row['target']}, suite {row['suite']} ({row['suite_digest'][:8]}), "
        f"concurrency {concurrency or row['concurrency']}, "
        f"temperature {row['temperature']}, {row['max_new_tokens']} new tokens, server {row['server_kind']} "
        f"{row['dtype']}, sglang {row['sglang_version']}, {row['hardware']}"
    )


def markdown_text(results: Results, groups: list[Group], directory: Path, compare: Compare | None) -> str:
    """report.md; draws its plots into directory/plots on the way."""
    parts = [f"# {results.name}", LEGEND] if groups else [f"# {results.name}"]
    if any(g.heads for g in groups):
        parts.append(PREDICTION)
    drawn = len(groups) if len(groups) <= FEW else DRAWN
    if drawn < len(groups):
        parts.append(f"Plots are drawn for the first {drawn} of {len(groups)} conditions; summary.csv has all numbers.")
    budget = COMPARED
    for i, group in enumerate(groups, 1):
        rows, title = group.rows, conditions(group.rows[0])
        parts += [f"## {title}", f"**{group.verdict}**", markdown(*_linked(*columns(rows), rows))]
        if i <= drawn:
            parts += _pictures(against_tokens, rows, title, directory, i)
        header, cells = positions(rows)
        if cells:
            parts += ["### Acceptance by draft position", markdown(header, cells)]
        parts += _promises(rows) + break_even.section(group.heads)
        compared, budget = _heads(rows, compare, budget)
        parts += compared + _divergences(rows)
    parts += _concurrencies(results.rows, directory, drawn // 2)
    if results.failed:
        cells = [
            [f"`{point}`", state, " ".join(why.split()).replace("|", "\\|")] for point, state, why in results.failed
        ]
        parts += ["## Points without a result", markdown(["point", "state", "reason"], cells)]
    parts += _origin(results)
    return "\n\n".join(parts) + "\n"


def _linked(header: list[str], cells: list[list[str]], rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The same with each line's first cell leading to its row."""
    pairs = zip(cells, rows, strict=True)
    return header, [[link(first, row["fingerprint"]), *rest] for (first, *rest), row in pairs]


def _pictures(draw: Callable[..., list[Path]], rows: list[Any], title: str, directory: Path, number: int) -> list[str]:
    paths = draw(rows, title, directory / "plots", f"_{number}" if number > 1 else "")
    return [f"![]({path.relative_to(directory).as_posix()})" for path in paths]


def _concurrencies(rows: list[dict[str, Any]], directory: Path, drawn: int) -> list[str]:
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


def _promises(group: list[dict[str, Any]]) -> list[str]:
    """Training proxy, replay and served acceptance side by side, with the alarms."""
    header, cells = promises(group)
    if not cells:
        return []
    said = [line for r in group for line in [*alarm(r), note(r)] if line]
    return ["### Promised and served", markdown(header, cells), *said]


def _heads(group: list[dict[str, Any]], compare: Compare | None, budget: int) -> tuple[list[str], int]:
    """Accept length of head against head at the same spec, paired by prompt; what is left of the budget of pairs."""
    by_spec: dict[str, list[dict[str, Any]]] = {}
    for r in group:
        if r.get("head_digest") and r.get("prompts"):
            by_spec.setdefault(r["spec"], []).append(r)
    pairs = [
        (a, b) for own in by_spec.values() for a, b in combinations(own, 2) if a["head_digest"] != b["head_digest"]
    ]
    if not compare or not pairs:
        return [], budget
    cells = []
    for a, b in pairs[:budget]:
        value, low, high = compare(a, b)
        names = " - ".join(link(short(r["head_digest"]), r["fingerprint"]) for r in (a, b))
        cells.append([a["spec"], names, number(value), interval(low, high)])
    parts = ["### Heads compared"]
    if cells:
        parts.append(markdown(["spec", "heads", "difference in accept length", "95 %, paired by prompt"], cells))
    if len(cells) < len(pairs):
        parts.append(f"{len(pairs) - len(cells)} pairs of heads are not compared: a report compares {COMPARED} in all.")
    return parts, budget - len(cells)


def _divergences(group: list[dict[str, Any]]) -> list[str]:
    cells = [
        [
            link(r["spec"], r["fingerprint"]),
            short(r["head_digest"]),
            str(d["prompt"]),
            *(str(d[k]) for k in ("turn", "position", "expected", "found")),
            number(d.get("gap_ulps"), 1),
        ]
        for r in group
        for d in r.get("divergences") or []
    ]
    header = ["spec", "head", "prompt", "turn", "token", "plain decoding", "this point", "gap in ulps"]
    return ["### Greedy answers that differ from plain decoding", markdown(header, cells)] if cells else []


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
