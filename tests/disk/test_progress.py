"""`ls results=SWEEP`: what became of each point."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.stage import locked
from eagle_lab.disk.progress import progress
from eagle_lab.sweep.status import set_status


def test_points_with_state_failure_and_seconds(lab: Any) -> None:
    done, failed, running, killed, planned = lab.sweep("grid", *(f"seed={n}" for n in range(5)))
    lab.finish(done, {})
    set_status(failed, "failed", error="CUDA out of memory\nmore", kind="out of memory", exit_code=3)
    for point in (running, killed):
        set_status(point, "running", pid=1)
    with locked(running):
        found = {p.point: p for p in progress(lab.root / "sweeps/grid")}
    states = [found[p.name].state for p in (done, failed, running, killed, planned)]
    assert states == ["done", "failed", "running", "killed", "planned"]
    assert (found[done.name].seconds, found[done.name].failure) == (12.4, "")
    assert (found[failed.name].failure, found[failed.name].error) == ("out of memory", "CUDA out of memory")
    assert found[done.name].at[:2] == "20"


def test_points_of_an_earlier_plan_come_last(lab: Any) -> None:
    (first,) = lab.sweep("grid", "seed=1")
    (second,) = lab.sweep("grid", "seed=2")
    assert [(p.point, p.state) for p in progress(lab.root / "sweeps/grid")] == [
        (second.name, "planned"),
        (first.name, "planned (not planned any more)"),
    ]


def test_what_is_no_sweep_is_refused(lab: Any) -> None:
    with pytest.raises(LabError, match=r"results=.*no sweep is there"):
        progress(lab.root)
    lab.sweep("grid", "seed=1")
    (lab.root / "sweeps/grid/plan.json").write_text(json.dumps({"points": 3}))
    with pytest.raises(LabError, match="not a sweep's plan"):
        progress(lab.root / "sweeps/grid")
