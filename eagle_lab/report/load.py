"""Rows and failures of a sweep or run directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json, read_jsonl

REQUIRED = (
    *("fingerprint", "measurement", "spec", "num_steps", "eagle_topk", "num_draft_tokens", "head_digest"),
    *("accept_length", "survival", "conditional", "tok_s", "target", "suite", "suite_digest", "concurrency"),
    *("temperature", "max_new_tokens", "server_kind", "dtype", "sglang_version", "hardware"),
)
"""Columns that every row has; others may be absent or null: no baseline on a server that already ran, say."""


@dataclass
class Results:
    name: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    """One per measurement, in table order; the shared baseline occurs once."""
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    """(point, state, reason) of every planned point that is not done."""
    command: list[str] | None = None
    """What started the sweep, from its plan.json."""


def load(directory: Path) -> Results:
    """Reads DIR/rows.jsonl (a run) and DIR/*/rows.jsonl (a sweep's points).

    Rows of a point that is not done (failed, interrupted, still running) are left out: its status says why.
    LabError when there is neither a row nor a point.
    """
    if not directory.is_dir():
        raise LabError(
            f"{directory}: no such directory. Give report a sweep or run directory, results=outputs/sweeps/..."
        )
    found = Results(name=directory.resolve().name)
    plan = read_json(directory / "plan.json") if (directory / "plan.json").exists() else {}
    # a point that an earlier plan left unfinished and this one does not want is nobody's failure
    planned = {p["point"] for p in plan["points"]} if plan else None
    by_fingerprint: dict[str, dict[str, Any]] = {}
    for point in [directory, *sorted(p for p in directory.iterdir() if p.is_dir())]:
        status = read_json(point / "status.json") if (point / "status.json").exists() else None
        if status is not None and status.get("state") != "done":
            if planned is not None and point.name not in planned:
                continue
            found.failed.append((point.name, str(status.get("state")), str(status.get("error", "not finished"))))
            continue
        if (point / "rows.jsonl").exists():
            for row in read_jsonl(point / "rows.jsonl"):
                by_fingerprint.setdefault(_fingerprint(row, point), row)
    if not by_fingerprint and not found.failed:
        raise LabError(f"{directory}: no rows.jsonl and no sweep points there. `eagle-lab bench` or `run` writes them.")
    found.rows = sorted(by_fingerprint.values(), key=order)
    found.command = plan.get("argv")
    return found


def _fingerprint(row: dict[str, Any], point: Path) -> str:
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        raise LabError(
            f"{point / 'rows.jsonl'}: a row without {', '.join(missing)}; it was not written by eagle-lab bench."
        )
    return str(row["fingerprint"])


def condition(row: dict[str, Any]) -> tuple[str, ...]:
    """What two rows must share to be compared: target, suite and how it is asked, server, engine, machine."""
    names = ("target", "target_digest", "suite", "suite_digest", "temperature", "max_new_tokens", "concurrency")
    return tuple(str(row.get(k)) for k in (*names, "server_kind", "dtype", "sglang_version", "hardware"))


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Condition, concurrencies by size, then the baseline, then heads in turn by draft tokens, chains before trees."""
    busy = (condition({**row, "concurrency": None}), row.get("concurrency") or 0)
    spec = [row.get(k) or 0 for k in ("num_draft_tokens", "eagle_topk", "num_steps")]
    return (*busy, row.get("head_digest") or "", *spec, row["fingerprint"])
