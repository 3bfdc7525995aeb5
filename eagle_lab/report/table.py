"""Rows as CSV and as tables for markdown and the terminal."""

from __future__ import annotations

import csv
import io
from typing import Any

COLUMNS = (
    *("spec", "num_steps", "eagle_topk", "num_draft_tokens", "accept_length", "accept_length_low"),
    *("accept_length_high", "tok_s", "baseline_tok_s", "speedup", "captured_width", "speculative_algorithm"),
    *("speedup_low", "speedup_high", "speedup_per_user", "break_even_accept_length", "accept_length_per_request"),
    *("drift", "drift_low", "drift_high"),
    *("survival", "conditional", "histogram", "tok_s_whole", "steady_s", "tok_s_per_user"),
    *("undisturbed_round_s", "round_spread", "prompt_s"),
    *("ttft_p50", "ttft_p95", "itl_p50", "itl_p95", "itl_p99", "differing_prompts", "requests", "completion_tokens"),
    *("head_digest", "trained_with", "aux_layers", "target", "target_digest"),
    *("suite", "suite_digest", "max_new_tokens"),
    *("temperature", "seed", "concurrency", "in_flight", "server_kind", "quantization", "tp", "dtype"),
    *("hardware", "sglang_version"),
    *("proxy_accept_length", "replayed_accept_length", "replayed_equal", "replayed_requests", "coverage"),
    *("measurement", "fingerprint", "baseline_fingerprint", "probe"),
    *("plain_step_s", "round_s", "undisturbed_tok_s"),
    *("predicted_accept_length", "predicted_round_s", "predicted_tok_s"),
)
"""Columns of summary.csv, in order; the first twelve are a promise to scripts. The last six are not in the rows: each
prediction is made from the other points."""


def csv_text(rows: list[dict[str, Any]]) -> str:
    """One line per row; lists are space-separated, what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(row.get(name)) for name in COLUMNS] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(_cell(v) if v is not None else "nan" for v in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def number(value: Any, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def interval(low: Any, high: Any, digits: int = 2) -> str:
    return "-" if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"


def short(head: Any) -> str:
    """A head's digest as tables show it."""
    return str(head)[:8] if head else "-"


def link(text: str, fingerprint: str) -> str:
    """Markdown that leads to the row's line in the report's last table."""
    return f"[{text}](#row-{fingerprint})"


Table = tuple[list[str], list[list[str]]]
"""Header and cells."""


def linked(table: Table, rows: list[dict[str, Any]]) -> Table:
    """The same with the first cell of each line leading to its row."""
    header, cells = table
    pairs = zip(cells, rows, strict=True)
    return header, [[link(first, row["fingerprint"]), *rest] for (first, *rest), row in pairs]


def columns(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the main table of rows that share a condition; in brackets the 95 % intervals."""
    seeded = any(r.get("seed") is not None for r in rows)
    trained = any(r.get("trained_with") for r in rows)
    header = ["spec", *(["seed"] if seeded else []), *(["trained with"] if trained else []), "head", "aux layers"]
    header += ["accept length", "tok/s", "speed-up"]
    header += ["break-even at", "differing prompts"]
    cells = []
    for r in rows:
        plain = r["spec"] == "none"
        cells.append(
            [
                r["spec"],
                *([str(r["seed"])] if seeded else []),
                *([r.get("trained_with") or "-"] if trained else []),
                short(r.get("head_digest")),
                _cell(r.get("aux_layers")) or "-",
                "1" if plain else with_interval(r, "accept_length", "accept_length_low", "accept_length_high"),
                number(r.get("tok_s"), 1),
                "1 (baseline)" if plain else with_interval(r, "speedup", "speedup_low", "speedup_high"),
                "-" if plain else number(r.get("break_even_accept_length")),
                "-" if r.get("differing_prompts") is None else str(r["differing_prompts"]),
            ]
        )
    return header, cells


def with_interval(row: dict[str, Any], name: str, low: str = "low", high: str = "high") -> str:
    """value (low to high), from the columns so named."""
    between = f" ({interval(row.get(low), row.get(high))})" if row.get(low) is not None else ""
    return number(row.get(name)) + between


def positions(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the per-position table: P(draft k and all before it correct), and given those before it."""
    deepest = max((len(r["survival"]) for r in rows), default=0)
    header = ["spec", "head", "", *(f"k={k}" for k in range(1, deepest + 1))]
    cells = []
    for r in rows:
        for title, values in (("P(>= k)", r["survival"]), ("P(k given k-1)", r["conditional"])):
            if values:
                padded = [number(v) for v in values] + ["-"] * (deepest - len(values))
                cells.append([link(r["spec"], r["fingerprint"]), short(r.get("head_digest")), title, *padded])
    return header, cells


def categories(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of accept length by the suite's categories, where there are at least two."""
    names = sorted({name for r in rows for name in r.get("categories") or {}})
    cells = [
        [
            link(r["spec"], r["fingerprint"]),
            short(r.get("head_digest")),
            *(with_interval(own[n], "accept_length") if n in own else "-" for n in names),
        ]
        for r in rows
        if (own := r.get("categories"))
    ]
    return ["spec", "head", *names], cells if len(names) > 1 else []


def along(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of accept length by place in the answer, and of its drift within answers."""
    stretches = sorted({(s["from"], s["to"]) for r in rows for s in r.get("by_position") or []})
    cells = []
    for r in rows:
        if r.get("by_position"):
            own = {
                (s["from"], s["to"]): f"{with_interval(s, 'accept_length')}, {s['requests']}" for s in r["by_position"]
            }
            drift = with_interval(r, "drift", "drift_low", "drift_high")
            point = [link(r["spec"], r["fingerprint"]), short(r.get("head_digest"))]
            cells.append([*point, *(own.get(s, "-") for s in stretches), drift])
    return ["spec", "head", *(f"tokens {a} to {b}, answers" for a, b in stretches), "second half - first half"], cells


def markdown(header: list[str], cells: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells)])


NARROW = {
    "trained with": "trained\nwith",
    "aux layers": "aux\nlayers",
    "accept length": "accept\nlength",
    "break-even at": "even\nat",
    "differing prompts": "differ",
}
"""Headers in the terminal, where 80 columns hold the table."""


def line(row: dict[str, Any]) -> str:
    """A row in a few words."""
    header, (cells,) = columns([row])
    found = dict(zip(header, cells, strict=True))
    return (
        f"{found['spec']}: accept length {found['accept length']}, {found['tok/s']} tok/s, speed-up {found['speed-up']}"
    )


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Prints the main table to the terminal; with a single head its columns are left out for width."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    header, cells = columns(rows)
    several = len({r.get("head_digest") for r in rows} - {None}) > 1
    shown = [i for i, name in enumerate(header) if several or name not in ("head", "aux layers")]
    console = Console()
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    cells = [[cell.replace(" to ", "-") for cell in row] for row in cells]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0 if several else 1, 0, 0))
    for i in shown:
        # narrower still, a cell breaks before its interval, never inside a number
        words = [word for row in cells for word in row[i].split()]
        table.add_column(NARROW.get(header[i], header[i]), min_width=max(map(len, words), default=0))
    for row in cells:
        table.add_row(*(row[i] for i in shown))
    console.print(table)
