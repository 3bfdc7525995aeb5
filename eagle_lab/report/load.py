"""Rows and failures of a sweep or run directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json, read_jsonl


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
    if not isinstance(row.get("fingerprint"), str):
        raise LabError(f"{point / 'rows.jsonl'}: a row without fingerprint; it was not written by eagle-lab bench.")
    return str(row["fingerprint"])


SERVER = ("server_kind", "dtype", "quantization", "tp", "sglang_version", "hardware")


def condition(row: dict[str, Any]) -> tuple[str, ...]:
    """What two rows must share to be compared: target, suite and how it is asked, server, engine, machine."""
    names = ("target", "target_digest", "suite", "suite_digest", "temperature", "max_new_tokens", "concurrency")
    return tuple(str(row.get(k)) for k in (*names, *SERVER))


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Condition, then the baseline, then heads in turn, each by draft tokens, chains before trees."""
    spec = [row.get(k) or 0 for k in ("num_draft_tokens", "eagle_topk", "num_steps")]
    return (condition(row), row.get("head_digest") or "", *spec, row.get("seed") or 0, row["fingerprint"])
