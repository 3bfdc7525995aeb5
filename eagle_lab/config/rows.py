"""The rows that a measurement leaves: what bench, report and doctor may count on when they read them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import check_fields, read_jsonl

ROW: dict[str, Any] = {
    **dict.fromkeys(("spec", "fingerprint", "measurement", "target", "suite", "suite_digest", "server_kind"), str),
    **dict.fromkeys(("dtype", "sglang_version", "hardware"), str),
    **dict.fromkeys(("concurrency", "max_new_tokens", "requests"), int),
    **dict.fromkeys(("temperature", "accept_length"), float),
    **{"survival": list[float], "conditional": list[float | None], "prompts": dict[str, list[float]]},
    # what admits None may be absent: it is not known then
    **dict.fromkeys(("num_steps", "eagle_topk", "num_draft_tokens"), int | None),
    **dict.fromkeys(("accept_length_low", "accept_length_high", "tok_s", "baseline_tok_s", "speedup"), float | None),
    **dict.fromkeys(("undisturbed_round_s", "baseline_undisturbed_round_s", "round_spread", "prompt_s"), float | None),
    **dict.fromkeys(("speedup_low", "speedup_high", "break_even_accept_length"), float | None),
    **{"head_digest": str | None, "aux_layers": list[int] | None, "divergences": list[dict] | None},
    "provenance": dict | None,
    "unchecked": str | None,
}
SPECULATING = dict.fromkeys(("num_steps", "eagle_topk", "num_draft_tokens"), int)
REQUEST: dict[str, Any] = {
    **{"prompt": str, "turn": int, "prompt_ids": list[int], "token_ids": list[int], "histogram": list[int]},
    **dict.fromkeys(("verify_ct", "correct_drafts"), int),
}


LEAST = {"accept_length": 1.0, "tok_s": 0.0, "baseline_tok_s": 0.0, "speedup": 0.0, "concurrency": 1, "requests": 1}
"""No measurement is below these: a verify step yields its own token at least."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a rows.jsonl, at least one. LabError with file and line for a row that no measurement has written."""
    fix = f"`eagle-lab bench` did not write it so. If {path.parent} is a measurement of ours, measure it again."
    rows = read_jsonl(path, ROW, fix)
    if not rows:
        raise LabError(f"{path}: no row in it. {fix}")
    for row in rows:
        below = [name for name, least in LEAST.items() if row.get(name) is not None and row[name] < least]
        if below:
            said = ", ".join(f"{name}={row[name]} (at least {LEAST[name]:g})" for name in below)
            raise LabError(f"{path}, row {row['spec']}: {said}. {fix}")
        if row["spec"] != "none":
            check_fields(row, SPECULATING, f"{path}, row {row['spec']}", fix)
    return rows


def read_requests(path: Path, count: int) -> list[dict[str, Any]]:
    """The `count` requests of a measurement. Raises LabError with file and line for a bad one, and when some lack."""
    fix = f"Remove {path.parent} to measure again."
    found = read_jsonl(path, REQUEST, fix)
    if len(found) != count:
        raise LabError(f"{path}: {len(found)} requests, the row beside it counts {count}. {fix}")
    return found
