"""Rows and failures of a sweep or run directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import check_fields, read_json
from eagle_lab.config.rows import ROW, read_rows


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
    """Reads DIR/rows.jsonl (a run) and DIR/*/rows.jsonl (a sweep's points; those of its last plan, where it has one).

    Rows of a point that is not done (failed, interrupted, still running) are left out: its status says why.
    LabError when there is neither a row nor a point.
    """
    if not directory.is_dir():
        raise LabError(
            f"{directory}: no such directory. Give report a sweep or run directory, results=outputs/sweeps/..."
        )
    found = Results(name=directory.resolve().name)
    again = "Run the sweep's command again: it writes the file anew and keeps what is done."
    plan = _optional(directory / "plan.json", {"points": list[dict], "argv": list[str] | None}, again)
    said: dict[str, Any] = {}
    if plan:  # what other grids have left beside its points stays on disk and out of the tables
        points = [directory / str(p.get("point")) for p in plan["points"]]
        said = {str(p.get("point")): p.get("trained_with") for p in plan["points"]}
    else:
        points = [directory, *sorted(p for p in directory.iterdir() if p.is_dir())]
    by_fingerprint: dict[str, dict[str, Any]] = {}
    for point in points:
        status = _optional(point / "status.json", {"state": str}, f"Remove {point} and run the sweep's command again.")
        if plan and status is None:
            status = {"state": "missing", "error": "its directory is gone; the same command makes it anew"}
        if status is not None and status["state"] != "done":
            found.failed.append((point.name, status["state"], str(status.get("error", "not finished"))))
            continue
        if (point / "rows.jsonl").exists():
            for row in read_rows(point / "rows.jsonl"):
                trained = said.get(point.name) if row.get("head_digest") else None
                row = {**dict.fromkeys(ROW), **row, "trained_with": trained}
                by_fingerprint.setdefault(row["fingerprint"], row)
    if not by_fingerprint and not found.failed:
        raise LabError(f"{directory}: no rows.jsonl and no sweep points there. `eagle-lab bench` or `run` writes them.")
    found.rows = sorted(by_fingerprint.values(), key=order)
    _check_prompts(directory, found.rows)
    found.command = plan.get("argv") if plan else None
    return found


def _check_prompts(directory: Path, rows: list[dict[str, Any]]) -> None:
    """LabError unless rows that say the same suite were asked the same prompts: they are compared prompt by prompt."""
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        other = first.setdefault(row["suite_digest"], row)
        if odd := sorted(row["prompts"].keys() ^ other["prompts"].keys()):
            raise LabError(
                f"{directory}: rows {row['measurement']} and {other['measurement']} say the same suite "
                f"({row['suite_digest'][:8]}), but {', '.join(odd[:3])} of {len(odd)} prompts are in one of them only. "
                "A rows.jsonl was edited: remove that point's directory and run the sweep's command again."
            )


def _optional(file: Path, wanted: dict[str, Any], fix: str) -> dict[str, Any] | None:
    if not file.exists():
        return None
    found = read_json(file)
    check_fields(found, wanted, str(file), fix)
    return found


SERVER = ("server_kind", "dtype", "quantization", "tp", "sglang_version", "hardware")


def condition(row: dict[str, Any]) -> tuple[str, ...]:
    """What two rows must share to be compared: target, suite and how it is asked, server, engine, machine."""
    names = ("target", "target_digest", "suite", "suite_digest", "temperature", "max_new_tokens", "concurrency")
    return tuple(str(row.get(k)) for k in (*names, *SERVER))


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Condition, concurrencies by size, then the baseline, then heads in turn by draft tokens, chains before trees."""
    busy = (condition({**row, "concurrency": None}), row["concurrency"])
    spec = [row.get(k) or 0 for k in ("num_draft_tokens", "eagle_topk", "num_steps")]
    return (*busy, row.get("head_digest") or "", *spec, row.get("seed") or 0, row["fingerprint"])
