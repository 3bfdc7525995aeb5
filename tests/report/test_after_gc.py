"""A sweep reports the same before and after a gc, and finds its stages again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagle_lab.config.stage import stage
from eagle_lab.disk import inventory
from eagle_lab.disk.garbage import garbage, remove
from eagle_lab.disk.references import References
from eagle_lab.evaluate import intervals
from eagle_lab.report.write import report


def measured(root: Path, spec: str, point: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The columns that lead from a row to its measurement, three days old."""
    monkeypatch.setattr(sys, "argv", ["__main__.py", "point", str(point)])
    with stage(root, "measurements", spec, {"spec": {"kind": spec}}) as work:
        work.finish({})
    os.utime(work.path / ".lock", (1e9, 1e9))
    return {"measurement": work.path.name, "fingerprint": work.digest}


def test_the_sweep_still_reports(tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = tmp_path / "sweeps/grid"
    base = make.baseline(**measured(tmp_path, "none", sweep / "none", monkeypatch))
    row = make.chain(5, 1.8, 26.0, **measured(tmp_path, "chain_5", sweep / "chain", monkeypatch))
    superseded = measured(tmp_path, "chain_9", sweep / "chain", monkeypatch)["measurement"]
    make.put(sweep / "none", [base])
    make.put(sweep / "chain", [base, row])
    before = report(sweep, intervals).read_text()
    found = inventory.outputs(tmp_path)
    items = garbage(found, References(found), tmp_path / "cache")
    assert [i.path.name for i in items] == [superseded]
    assert all(remove(item) for item in items)
    assert report(sweep, intervals).read_text() == before
    for spec in ("none", "chain_5"):
        with stage(tmp_path, "measurements", spec, {"spec": {"kind": spec}}) as work:
            assert work.reused
