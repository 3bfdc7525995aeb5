"""What `gc` lists, and that it removes exactly that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagle_lab.config.stage import locked, stage
from eagle_lab.disk import garbage as module
from eagle_lab.disk import inventory
from eagle_lab.disk.garbage import remove
from eagle_lab.sweep.status import set_status

GONE = "no sweep or run uses it any more"


def test_nothing_of_a_finished_sweep_may_go(full: Any) -> None:
    lab, _ = full
    assert lab.may_go() == {}


def test_when_its_sweep_is_deleted_all_of_it_may_go(full: Any) -> None:
    lab, at = full
    shutil.rmtree(lab.root / "sweeps/grid")
    # export and replay go with the stage that they lie in
    whole = [at[k] for k in ("prompts", "answers", "dataset", "head", "probe", "base", "measured")]
    expected = {str(p.relative_to(lab.root)): f"made by sweep grid; {GONE}" for p in whole}
    assert lab.may_go() == expected
    bytes_listed = sum(item.bytes for item in lab.garbage())
    assert bytes_listed == sum(e.bytes for e in inventory.outputs(lab.root).stages)
    assert all(remove(item) for item in lab.garbage())
    assert inventory.outputs(lab.root).stages == []
    assert lab.may_go() == {}


def test_what_another_sweep_or_run_or_hand_uses_stays(full: Any) -> None:
    lab, at = full
    # by hand, from the dataset that the sweep made
    mine, export = lab.head(1e-4, at["dataset"])
    (mine / "checkpoints/step=8.ckpt").unlink()
    lab.age(mine, 3)
    run = lab.root / "runs/bench/mine"
    run.mkdir(parents=True)
    (run / "rows.jsonl").write_text(json.dumps({"measurement": at["base"].name, "head": str(export)}) + "\n")
    shutil.rmtree(lab.root / "sweeps/grid")
    assert set(lab.may_go()) == {str(at[k].relative_to(lab.root)) for k in ("head", "probe", "measured")}


def test_a_sweep_outside_of_outputs_keeps_its_stages(lab: Any, tmp_path: Path) -> None:
    point = tmp_path / "elsewhere/sweep/point"
    lab.data(0, by=point)
    assert len(lab.may_go()) == 3
    point.mkdir(parents=True)
    assert lab.may_go() == {}


def test_an_unfinished_point_keeps_what_bears_its_names(lab: Any) -> None:
    """Its head has been trained, its server failed: nothing names the head yet."""
    (point,) = lab.sweep("grid", "spec=chain_5")
    set_status(point, "failed", error="x", kind="server died")
    made = lab.data(0, by=point)
    head, _ = lab.head(1e-3, made[2], by=point)
    half = lab.stage("answers", "synth", {"n": 1}, {"answers.jsonl": 9}, done=False)
    kept = [lab.measurement("none", None, by=point), lab.measurement("chain_5", 5, by=point)]
    other = lab.measurement("chain_16", 16, by=point)
    lab.age(head, 3)
    assert set(lab.may_go()) == {
        str(other.relative_to(lab.root)),
        str((head / "checkpoints/step=8.ckpt").relative_to(lab.root)),
    }
    # one that the present plan does not want any more keeps nothing
    lab.sweep("grid", "spec=none")
    lab.finish(next(p for p in (lab.root / "sweeps/grid").iterdir() if "none" in p.name), {})
    assert {str(p.relative_to(lab.root)) for p in (*made, head, half, *kept)} < set(lab.may_go())


def test_a_point_s_given_head_is_kept(lab: Any) -> None:
    *_, dataset = lab.data(0, by=Path("/gone/a/p"))
    head, export = lab.head(1e-3, dataset, by=Path("/gone/a/p"))
    (head / "checkpoints/step=8.ckpt").unlink()
    lab.age(head, 3)
    lab.sweep("grid", f"head={export}", "target.name=other")
    assert lab.may_go() == {}


def test_work_in_progress_goes_after_a_day_unless_it_would_be_taken_up(lab: Any) -> None:
    old = lab.stage("heads", "tiny", {"n": 1}, {"checkpoints/step=8.ckpt": 9}, done=False)
    lab.stage("heads", "tiny", {"n": 2}, {"checkpoints/step=8.ckpt": 9}, done=False, days=0.9)
    why = lab.may_go()
    assert list(why) == [str(old.relative_to(lab.root))]
    assert "untouched since" in why[str(old.relative_to(lab.root))]
    os.utime(old / "checkpoints/step=8.ckpt")
    assert lab.may_go() == {}
    lab.age(old, 3)
    lab.sweep("grid", "spec=chain_5")
    assert lab.may_go() == {}


def test_the_dataset_of_a_head_in_progress_stays(lab: Any) -> None:
    lab.data(0, by=Path("/gone/a/p"))
    lab.stage("heads", "tiny", {"n": 1}, {}, done=False, days=0)
    assert lab.may_go() == {}


def test_what_was_opened_within_a_day_is_not_unused(lab: Any) -> None:
    made = lab.measurement("none", None, by=Path("/gone/a/p"))
    assert len(lab.may_go()) == 1
    os.utime(made / ".lock")
    assert lab.may_go() == {}


def test_nothing_is_unused_while_anything_is_at_work_or_cannot_be_read(full: Any) -> None:
    lab, at = full
    lab.measurement("chain_16", 16, by=Path("/gone/a/p"))
    assert len(lab.may_go()) == 1
    with locked(at["probe"]):
        assert lab.may_go() == {}
        assert lab.references().unknown == [f"{at['probe'].relative_to(lab.root)} is in use"]
    for name, text in {"rows.jsonl": "{", "status.json": "[]", "config.yaml": "a: ["}.items():
        file = at["chain"] / name
        was = file.read_text()
        file.write_text(text)
        if name == "config.yaml":
            set_status(at["chain"], "failed")
        assert lab.may_go() == {}
        assert str(at["chain"]) in lab.references().unknown[0]
        file.write_text(was)


def test_parts_that_are_of_no_use(full: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, at = full
    monkeypatch.setattr(module, "LOG_BYTES", 2**20)
    ckpt = at["head"] / "checkpoints/step=8.ckpt"
    ckpt.write_bytes(b"x" * 70_000)
    torn = [at["export"] / ".model.safetensors.123.tmp", at["chain"] / ".status.json.9.tmp"]
    torn.append(lab.cache / ".digests.json.9.tmp")
    for file in torn:
        file.write_text("{")
    young = at["chain"] / ".rows.jsonl.8.tmp"
    for file in torn[1:]:
        os.utime(file, (1e9, 1e9))
    young.write_text("")
    for path in (at["measured"], at["base"]):
        (path / "server.log").write_bytes(b"x" * (2**20 + (path == at["measured"])))
    synced = at["chain"] / "wandb/offline-run-1"
    for run in (synced, at["chain"] / "wandb/offline-run-2"):
        run.mkdir(parents=True)
        (run / "run-a.wandb").write_text("")
    (synced / "run-a.wandb.synced").write_text("")
    items = lab.garbage()
    assert {i.path for i in items} == {ckpt, *torn, at["measured"] / "server.log", synced}
    assert next(i.bytes for i in items if i.path == ckpt) == ckpt.stat().st_blocks * 512 >= 70_000
    before = lab.tree()
    assert all(remove(item) for item in items)
    removed = {i.path for i in items} | set(synced.rglob("*")) | {synced / "run-a.wandb", synced / "run-a.wandb.synced"}
    assert set(before) - set(lab.tree()) == {str(p) for p in removed}
    assert lab.may_go() == {}


def test_checkpoints_of_a_head_in_progress_and_logs_of_a_failed_server_stay(lab: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LOG_BYTES", 0)
    lab.stage("heads", "tiny", {"n": 1}, {"checkpoints/step=8.ckpt": 9}, done=False, days=0)
    lab.stage("probes", "chain_5", {"n": 1}, {"server.log": 9}, done=False, days=0)
    assert lab.may_go() == {}


def test_a_look_changes_nothing(full: Any) -> None:
    lab, _ = full
    shutil.rmtree(lab.root / "sweeps/grid")
    before = lab.tree()
    assert lab.may_go()
    assert lab.tree() == before


def test_foreign_files_stay_and_keep_the_stage_that_they_are_in(full: Any) -> None:
    lab, at = full
    shutil.rmtree(lab.root / "sweeps/grid")
    theirs = [at["measured"] / "replay/notes.md", at["head"] / "why.md", lab.root / "mine.txt", lab.root / "heads/x.pt"]
    for file in theirs:
        file.write_text("mine")
    lab.age(lab.root, 3)
    items = lab.garbage()
    names = ("prompts", "answers", "dataset", "base", "probe", "export", "replay")
    assert {i.path for i in items} == {at[name] for name in names}
    assert all(remove(item) for item in items)
    assert all(file.read_text() == "mine" for file in theirs)


HOLDER = """
import sys, pathlib
from eagle_lab.config.stage import locked
with locked(pathlib.Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""


def test_what_another_process_holds_stays_also_when_it_came_after_the_listing(lab: Any) -> None:
    head = lab.stage("heads", "tiny", {"n": 1}, {"checkpoints/step=8.ckpt": 9}, done=False)
    (listed,) = lab.garbage()
    args = [sys.executable, "-c", HOLDER, str(head)]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        assert lab.may_go() == {}
        assert not remove(listed)
    # it is free again, but somebody has worked there since
    assert not remove(listed)
    assert (head / "checkpoints/step=8.ckpt").exists()
    shutil.rmtree(head)
    assert not remove(listed)


def test_a_gc_killed_between_rename_and_delete_leaves_a_state_that_the_next_one_cleans_up(
    full: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, at = full
    shutil.rmtree(lab.root / "sweeps/grid")
    listed = {i.path: i for i in lab.garbage()}

    def killed(path: Path) -> None:
        (Path(path) / "manifest.json").unlink()  # half of it
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(listed[at["head"]])
    assert not at["head"].exists()
    left = at["head"].with_name(f".{at['head'].name}.trash")
    assert (left / "head.safetensors").exists()
    # the same command makes it anew, and its name is free
    key = json.loads((at["dataset"] / "manifest.json").read_text())["key"]
    with stage(lab.root, "heads", "tiny", {"key": key}) as work:
        assert work.manifest is None
    found = inventory.outputs(lab.root)
    assert (found.left, found.foreign) == ([left], [])
    items = lab.garbage()
    assert (items[0].path, items[0].why) == (left, "left by a gc that was killed")
    assert all(remove(item) for item in items)
    assert not left.exists()
    assert lab.may_go() == {}


def test_half_converted_targets_go_unless_a_converter_is_at_work(lab: Any) -> None:
    lab.root.mkdir()
    targets = lab.cache / "targets"
    for name in (".tiny-0123456789ab.partial", "tiny-0123456789ab"):
        (targets / name).mkdir(parents=True)
        (targets / name / "config.json").write_text("{}")
    with locked(targets):
        assert lab.garbage() == []
    (item,) = lab.garbage()
    assert remove(item)
    assert sorted(p.name for p in targets.iterdir()) == [".lock", "tiny-0123456789ab"]
