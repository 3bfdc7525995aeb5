"""`eagle-lab ls` and `eagle-lab gc` as commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def eagle_lab(lab: Any, *args: str) -> subprocess.CompletedProcess[str]:
    cwd = lab.cache.parent / "here"
    cwd.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "eagle_lab", *args, f"paths.outputs={lab.root}", f"paths.cache={lab.cache}"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert list(cwd.iterdir()) == []
    return done


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_ls_lists_and_sums_and_changes_nothing(full: Any) -> None:
    lab, at = full
    (lab.root / "notes.txt").write_text("mine")
    (lab.cache / "targets/tiny-0123456789ab").mkdir(parents=True)
    before = lab.tree()
    done = eagle_lab(lab, "ls")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    (head,) = (line for line in lines if line[:1] == [at["head"].name])
    assert [head[1], *head[-2:]] == ["done", "1", "sweep"]
    assert [line[0] for line in lines if f"{at['head'].name}/export/{at['export'].name}" in line] != []
    assert ["sweeps", "1"] in [line[:2] for line in lines]
    assert ["measurements", "2"] in [line[:2] for line in lines]
    assert ["targets", "1"] in [line[:2] for line in lines]
    assert f"not made by eagle-lab: {lab.root}/notes.txt" in done.stdout
    assert lab.tree() == before


def test_ls_of_a_sweep(full: Any) -> None:
    lab, at = full
    done = eagle_lab(lab, "ls", f"results={lab.root}/sweeps/grid")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = (line.split() for line in done.stdout.splitlines() if line.startswith(at["chain"].name))
    assert line[1:3] == ["done", "12"]


def test_gc_lists_and_with_remove_removes_exactly_what_it_listed(full: Any) -> None:
    lab, at = full
    shutil.rmtree(lab.root / "sweeps/grid")
    mine, _ = lab.head(1e-4, at["dataset"])
    (lab.root / "heads/notes.txt").write_text("mine")
    before = lab.tree()
    dry = eagle_lab(lab, "gc")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert lab.tree() == before
    assert "Nothing was removed; add remove=true" in dry.stdout
    listed = [line.split()[0] for line in dry.stdout.splitlines() if line.split()[:1] and "/" in line.split()[0]]
    going = [lab.root / name for name in listed]
    assert going == [at["head"], mine / "checkpoints/step=8.ckpt", at["probe"], *sorted((at["base"], at["measured"]))]
    done = eagle_lab(lab, "gc", "remove=true")
    assert (done.returncode, done.stderr) == (0, "")
    assert "removed 5 of 5" in done.stdout
    kept = {p for p in before if not any(Path(p).is_relative_to(g) for g in going)}
    after = lab.tree()
    assert set(after) == kept
    files = [p for p in kept if Path(p).is_file()]
    assert {p: after[p] for p in files} == {p: before[p] for p in files}
    assert "nothing may go" in eagle_lab(lab, "gc").stdout


def test_gc_says_what_it_does_not_judge(full: Any) -> None:
    lab, at = full
    (at["chain"] / "rows.jsonl").write_text("{")
    done = eagle_lab(lab, "gc", "remove=true")
    assert f"no stage counts as unused now: {at['chain']}/rows.jsonl, line 1: not JSON" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["ls", "results=/no/such/sweep"], "results=/no/such/sweep: no sweep is there"),
        (["gc", "--multirun", "seed=1,2"], "gc looks at all that there is, once: drop --multirun"),
        (["gc", "remove=perhaps"], "perhaps"),
        (["gc", "remove=true", "dry_run=true"], "dry_run=true belongs to a sweep"),
        (["ls"], "no such directory"),
        (["gc", "jobs=0"], "jobs=0"),
    ],
)
def test_faults(lab: Any, args: list[str], says: str) -> None:
    done = eagle_lab(lab, *args)
    assert done.returncode == 2
    assert says in done.stderr
    assert not lab.root.exists()
