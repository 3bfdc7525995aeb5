"""summary.csv, report.md and plots/ of a sweep or run: a pure function of its rows."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

from eagle_lab.config.files import write_text
from eagle_lab.report.diagnosis import alarm, note, promises
from eagle_lab.report.load import Results, condition, load
from eagle_lab.report.plots import plots
from eagle_lab.report.table import columns, csv_text, interval, markdown, number, positions, short, show
from eagle_lab.report.verdict import verdict

LEGEND = (
    "Accept length: 1 + correct drafts / verify steps, pooled over all requests; in brackets its 95 % interval over "
    "prompts. tok/s: completion tokens per second of wall time while all request slots are busy. Speed-up: tok/s over "
    "that of plain decoding with the same suite, concurrency and server; its interval is that of the speed per "
    "request, paired by prompt, and does not hold the machine's own variation. Break-even at: the accept length at "
    "which this point would run as fast as plain decoding. Differing prompts: greedy answers that are not those of "
    "plain decoding, token for token."
)

Compare = Callable[[dict[str, Any], dict[str, Any]], tuple[float, float | None, float | None]]
"""(row, row) of the same prompts -> difference in accept length and its interval."""


def report(directory: Path, compare: Compare | None = None) -> Path:
    """Writes and prints the report of `directory`; returns report.md. LabError when there is nothing to report.

    compare: how two heads at one spec are compared; without it that section is left out.
    """
    results = load(directory)
    groups = grouped(results.rows)
    write_text(directory / "summary.csv", csv_text(results.rows))
    drawn = [plots(g, directory / "plots", f"_{i}" if i > 1 else "") for i, g in enumerate(groups, 1)]
    text = markdown_text(results, groups, [[p.relative_to(directory).as_posix() for p in d] for d in drawn], compare)
    write_text(directory / "report.md", text)
    for group in groups:
        show(group, conditions(group[0]))
        _say(verdict(group))
        for row in group:
            for line in [*alarm(row), note(row)]:
                if line:
                    _say(line)
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
    results: Results, groups: list[list[dict[str, Any]]], drawn: list[list[str]], compare: Compare | None
) -> str:
    parts = [f"# {results.name}", LEGEND] if groups else [f"# {results.name}"]
    for group, pictures in zip(groups, drawn, strict=True):
        parts += [f"## {conditions(group[0])}", f"**{verdict(group)}**", markdown(*columns(group))]
        parts += [f"![]({picture})" for picture in pictures]
        header, cells = positions(group)
        if cells:
            parts += ["### Acceptance by draft position", markdown(header, cells)]
        parts += _promises(group) + _heads(group, compare) + _divergences(group)
    if results.failed:
        cells = [
            [f"`{point}`", state, " ".join(why.split()).replace("|", "\\|")] for point, state, why in results.failed
        ]
        parts += ["## Points without a result", markdown(["point", "state", "reason"], cells)]
    parts += _origin(results)
    return "\n\n".join(parts) + "\n"


def _promises(group: list[dict[str, Any]]) -> list[str]:
    """Training proxy, replay and served acceptance side by side, with the alarms."""
    header, cells = promises(group)
    if not cells:
        return []
    said = [line for r in group for line in [*alarm(r), note(r)] if line]
    return ["### Promised and served", markdown(header, cells), *said]


def _heads(group: list[dict[str, Any]], compare: Compare | None) -> list[str]:
    """Accept length of head against head at the same spec, paired by prompt."""
    cells = []
    for a, b in combinations([r for r in group if r.get("head_digest")], 2):
        if compare and a["spec"] == b["spec"] and a["head_digest"] != b["head_digest"]:
            value, low, high = compare(a, b)
            pair = f"{short(a['head_digest'])} - {short(b['head_digest'])}"
            cells.append([a["spec"], pair, number(value), interval(low, high)])
    header = ["spec", "heads", "difference in accept length", "95 %, paired by prompt"]
    return ["### Heads compared", markdown(header, cells)] if cells else []


def _divergences(group: list[dict[str, Any]]) -> list[str]:
    cells = [
        [
            r["spec"],
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
