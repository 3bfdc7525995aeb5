"""`python -m tests.doc_tables`: writes the tables of README.md and docs/ anew from the rows in docs/results.

A table stands between `<!-- rows: FILE KEY=VALUE ... -->` and `<!-- end of rows -->`: the rows of docs/results/FILE
whose columns have these values, or lists that hold them, in their order.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"<!-- rows: (?P<file>\S+)(?P<where>( \w+=[^ >]+)*) -->\n.*?<!-- end of rows -->", re.DOTALL)
COLUMNS = (
    *("spec", "accept length (95% interval)", "accepted at draft position 1, 2, 3, 4"),
    *("tok/s", "speed-up", "breaks even at"),
)
OP_COLUMNS = ("tokens", "supervised", "who", "ms (p20 to p80)", "GiB", "TFLOP/s", "of a copy's speed", "commit")
TRAINED_COLUMNS = (
    *("override", "accept length (95% interval)", "accepted at draft position 1, 2, 3", "held out"),
    "difference (paired, 95%)",
)
AGAIN_COLUMNS = ("suite", "spec", "first run", "second run (95% interval)", "difference (paired, 95%)")
STORY_COLUMNS = ("served", "algorithm", "captured width", "accept length (95% interval)", "refused by the check")


def renewed(page: str) -> str:
    """The page with every table made from its rows."""
    return BLOCK.sub(_block, page)


def _block(found: re.Match[str]) -> str:
    wanted = dict(pair.split("=") for pair in found["where"].split())
    rows = chosen(found["file"], **wanted)
    assert rows, f"no row in docs/results/{found['file']} has {wanted}"
    opening = found[0].partition("\n")[0]
    columns, line = (OP_COLUMNS, _op_line) if "op" in rows[0] else (COLUMNS, _line)
    if "case" in rows[0]:
        columns, line = STORY_COLUMNS, _story_line
    if "sweep" in wanted:
        columns, line = TRAINED_COLUMNS, _trained_line
    if "first_run" in rows[0]:
        columns, line = AGAIN_COLUMNS, _again_line
    if any("predicted_tok_s_without_it" in row for row in rows):
        columns, line = (*COLUMNS, "tok/s predicted from the others"), _predicted_line
    header = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([opening, *header, *map(line, rows), "<!-- end of rows -->"])


def chosen(file: str, **wanted: str) -> list[dict[str, Any]]:
    """The rows of docs/results/`file` whose columns are `wanted`, or hold it."""
    lines = (ROOT / "docs/results" / file).read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if all(_has(row.get(k), v) for k, v in wanted.items())]


def _has(value: Any, wanted: str) -> bool:
    return wanted in value if isinstance(value, list) else str(value) == wanted


def _line(row: dict[str, Any]) -> str:
    if row["spec"] == "none":
        return f"| none | 1 | | {row['tok_s']:,.1f} | 1 (baseline) | |"
    positions = _survival(row["survival"][:4])
    speedup = f"{row['speedup']:.2f} ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"
    even = f"{row['break_even_accept_length']:.2f}"
    return f"| {row['spec']} | {_accept(row)} | {positions} | {row['tok_s']:,.1f} | {speedup} | {even} |"


def _accept(row: dict[str, Any]) -> str:
    return f"{row['accept_length']:.2f} ({row['accept_length_low']:.2f} to {row['accept_length_high']:.2f})"


def _survival(shares: list[float]) -> str:
    return " ".join(f"{p:.2f}".removeprefix("0") for p in shares)


def _difference(row: dict[str, Any]) -> str:
    if "difference" not in row:
        return ""
    return f"{row['difference']:+.2f} ({row['difference_low']:+.2f} to {row['difference_high']:+.2f})"


def _trained_line(row: dict[str, Any]) -> str:
    served, held_out = _survival(row["survival"]), _survival(row["proxy_survival"])
    return f"| `{row['override']}` | {_accept(row)} | {served} | {held_out} | {_difference(row)} |"


def _again_line(row: dict[str, Any]) -> str:
    cells = (row["suite"], row["spec"], f"{row['first_run']:.2f}", _accept(row), _difference(row))
    return f"| {' | '.join(cells)} |"


def _story_line(row: dict[str, Any]) -> str:
    named = row["named"] or "-"
    cells = (row["case"], row["speculative_algorithm"], f"{row['captured_width']:,}", _accept(row), named)
    return f"| {' | '.join(cells)} |"


def _predicted_line(row: dict[str, Any]) -> str:
    found = row.get("predicted_tok_s_without_it")
    cell = f"{found:,.1f} ({found / (row.get('undisturbed_tok_s') or row['tok_s']) - 1:+.1%})" if found else ""
    return f"{_line(row)} {cell} |"


def _op_line(row: dict[str, Any]) -> str:
    digits = 2 if row["ms"] >= 1 else 3
    times = f"{row['ms']:.{digits}f} ({row['ms_p20']:.{digits}f} to {row['ms_p80']:.{digits}f})"
    speed = f"{row['tflop_s']:.0f}" if row.get("tflop_s") else ""
    copied = f"{row['of_copy']:.0%}" if row.get("of_copy") else ""
    commit = (row.get("tree") or row.get("commit") or "").split("/")[-1]
    share, size = f"{row['supervised']:.0%}", f"{row['peak_gib']:.2f}"
    cells = (f"{row['tokens']:,}", share, row["provider"], times, size, speed, copied, commit)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for file in PAGES:
        file.write_text(renewed(file.read_text(encoding="utf-8")), encoding="utf-8")
