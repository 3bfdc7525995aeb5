"""What a sweep point's W&B run must hold, worked out from the point's files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config import load
from eagle_lab.config.digest import plain
from eagle_lab.config.files import read_json, read_jsonl
from tests.track.offline import OfflineRun

NOT_IN_THE_SUMMARY = {"prompts", "provenance", "divergences", "categories", "by_position"}


def assert_equals_the_point(run: OfflineRun, point: Path, group: str, job_type: str) -> None:
    assert (run.name, run.group, run.job_type) == (point.name, group, job_type)
    assert read_json(point / "status.json")["state"] == "done"
    assert run.exit_code == 0
    rows = read_jsonl(point / "rows.jsonl")
    expected = columns(rows[-1], "")
    if len(rows) == 2:
        expected |= columns(rows[0], "none/")
    training = {k for k in run.summary if k.startswith(("train/", "held_out/"))}
    assert {k: v for k, v in run.summary.items() if k not in training} == expected
    assert {k: v for k, v in run.config.items() if k != "lineage"} == plain(load.load_file(point / "config.yaml"))


def columns(row: dict[str, Any], prefix: str) -> dict[str, Any]:
    found = {}
    for name, value in row.items():
        if value is None or name in NOT_IN_THE_SUMMARY or value == []:
            continue
        if isinstance(value, list) and name != "aux_layers":
            start = 0 if name == "histogram" else 1  # drafts are counted from 1
            for k in range(len(value)):
                if value[k] is not None:
                    found[f"{prefix}{name}/{k + start}"] = value[k]
        else:
            found[prefix + name] = value
    return found
