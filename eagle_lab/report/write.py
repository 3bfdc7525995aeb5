"""summary.csv, report.md and plots/ of a sweep or run: a pure function of its rows."""

from __future__ import annotations

import shlex
from itertools import combinations
from pathlib import Path
from typing import Any

from eagle_lab.config.files import write_text
from eagle_lab.report.diagnosis import alarm, note, promises
from eagle_lab.report.load import Results, condition, load
from eagle_lab.report.plots import plots
from eagle_lab.report.seeds import Row, Statistics, pooled, spread
from eagle_lab.report.table import (
    along,
    categories,
    columns,
    csv_text,
    interval,
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
    "plain decoding, token for token."
)


def report(directory: Path, statistics: Statistics) -> Path:
    """Writes and prints the report of `directory`; returns report.md. LabError when there is nothing to report."""
    results = load(directory)
    groups = [(rows, pooled(rows, statistics)) for rows in grouped(results.rows)]
    write_text(directory / "summary.csv", csv_text(results.rows))
    drawn = [plots(p, directory / "plots", f"_{i}" if i > 1 else "") for i, (_, p) in enumerate(groups, 1)]
    pictures = [[p.relative_to(directory).as_posix() for p in d] for d in drawn]
    write_text(directory / "report.md", markdown_text(results, groups, pictures, statistics))
    for rows, points in groups:
        show(rows, conditions(rows[0]))
        _say(verdict(points))
        for row in rows:
            for said in [*alarm(row), note(row)]:
                if said:
                    _say(said)
    for point, state, reason in results.failed:
        _say(f"{state.upper()}: {point}: {reason}")
    _say(f"report: {directory / 'report.md'}")
    return directory / "report.md"


def _say(line: str) -> None:
    from rich.console import Console

    Console().print(line, markup=False, highlight=False, soft_wrap=True)


def grouped(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows by condition: only those of one group can be compared."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(condition(row), []).append(row)
    return list(groups.values())


def conditions(row: dict[str, Any]) -> str:
    return (
        f"{row['target']}, suite {row['suite']} ({row['suite_digest'][:8]}), concurrency {row['concurrency']}, "
        f"temperature {row['temperature']}, {row['max_new_tokens']} new tokens, server {row['server_kind']} "
        f"{row['dtype']}, sglang {row['sglang_version']}, {row['hardware']}"
    )


def markdown_text(
    results: Results, groups: list[tuple[list[Row], list[Row]]], drawn: list[list[str]], statistics: Statistics
) -> str:
    """groups: (rows, the same with seeds pooled) of each condition; drawn: their pictures."""
    parts = [f"# {results.name}", LEGEND] if groups else [f"# {results.name}"]
    for (rows, points), pictures in zip(groups, drawn, strict=True):
        parts += [f"## {conditions(rows[0])}", f"**{verdict(points)}**", markdown(*columns(rows))]
        parts += [f"![]({picture})" for picture in pictures]
        sections = {
            "Seeds pooled": spread(points),
            "Acceptance by draft position": positions(rows),
            "Accept length by category": categories(rows),
            "Accept length along the answer": along(rows),
            "Promised and served": promises(rows),
            "Compared": _compared(points, statistics),
            "Greedy answers that differ from plain decoding": _divergences(rows),
        }
        for title, (header, cells) in sections.items():
            if cells:
                parts += [f"### {title}", markdown(header, cells)]
        parts += [said for r in rows for said in [*alarm(r), note(r)] if said]
    if results.failed:
        cells = [
            [f"`{point}`", state, " ".join(why.split()).replace("|", "\\|")] for point, state, why in results.failed
        ]
        parts += ["## Points without a result", markdown(["point", "state", "reason"], cells)]
    parts += _origin(results)
    return "\n\n".join(parts) + "\n"


def _compared(points: list[Row], statistics: Statistics) -> tuple[list[str], list[list[str]]]:
    """Heads at one spec with each other, and the specs of one head with its fastest; paired by prompt."""
    cells = []
    for a, b in _pairs([r for r in points if r["spec"] != "none"]):
        length, speed = statistics.accept_length_difference(a["prompts"], b["prompts"]), statistics.speedup(a, b)
        found = [f"{number(x.value)} ({interval(x.low, x.high)})" for x in (length, speed)]
        cells.append([name(a), name(b), *found])
    return ["a", "b", "accept length, a - b", "tok/s, a / b"], cells


def _pairs(points: list[Row]) -> list[tuple[Row, Row]]:
    heads = [(a, b) for a, b in combinations(points, 2) if a["spec"] == b["spec"]]
    specs = []
    for head in dict.fromkeys(r["head_digest"] for r in points):
        own = [r for r in points if r["head_digest"] == head]
        fastest = max(own, key=lambda r: r.get("tok_s") or 0)
        specs += [(r, fastest) for r in own if r["spec"] != fastest["spec"]]
    return heads + specs


def _divergences(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    header = ["spec", "head", "prompt", "turn", "token", "plain decoding", "this point", "gap in ulps"]
    cells = []
    for r in rows:
        for d in r.get("divergences") or []:
            at = (str(d[k]) for k in ("turn", "position", "expected", "found"))
            cells.append([r["spec"], short(r["head_digest"]), str(d["prompt"]), *at, number(d.get("gap_ulps"), 1)])
    return header, cells


def _origin(results: Results) -> list[str]:
    """Where every number comes from and how to get it again."""
    cells = [
        [
            r["spec"],
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
