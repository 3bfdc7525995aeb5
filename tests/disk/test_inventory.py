"""What `ls` reports: states, sizes, users."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.stage import locked
from eagle_lab.disk import inventory
from eagle_lab.disk.inventory import weigh
from eagle_lab.disk.references import counted


def test_every_stage_of_a_sweep_is_found_with_its_users(full: Any) -> None:
    lab, at = full
    found = inventory.outputs(lab.root)
    assert found.foreign == found.left == []
    assert {e.path: (e.kind, e.state) for e in found.stages} == {
        at["prompts"]: ("prompts", "done"),
        at["answers"]: ("answers", "done"),
        at["dataset"]: ("datasets", "done"),
        at["head"]: ("heads", "done"),
        at["export"]: ("export", "done"),
        at["probe"]: ("probes", "done"),
        at["base"]: ("measurements", "done"),
        at["measured"]: ("measurements", "done"),
        at["replay"]: ("replay", "done"),
    }
    users = lab.references().users
    assert [users[e.path] for e in found.stages] == [{"sweep grid"}] * 9
    assert lab.users()["grid"].state == "2 of 2 done"


def test_users_are_counted_by_sweep_and_run(full: Any) -> None:
    lab, at = full
    (other,) = lab.sweep("again", "spec=none")
    lab.finish(other, {"measurement": at["base"].name})
    run = lab.root / "runs/bench/mine"
    run.mkdir(parents=True)
    lab_row = f'{{"measurement": "{at["base"].name}", "head": "/moved/outputs/{at["export"].relative_to(lab.root)}"}}\n'
    (run / "rows.jsonl").write_text(lab_row)
    users = lab.references().users
    assert users[at["base"]] == {"sweep grid", "sweep again", "run bench/mine"}
    assert counted(users[at["base"]]) == "2 sweeps, 1 run"
    assert counted(users[at["answers"]]) == "1 sweep, 1 run"  # through export, head and dataset
    assert lab.users()["bench/mine"].state == "rows"


def test_a_stage_that_no_sweep_made_is_somebody_s_by_hand_with_all_that_it_was_made_from(lab: Any) -> None:
    *made, dataset = lab.data(0, by=Path("/gone/sweeps/a/p"))
    head, export = lab.head(1e-3, dataset)
    users = lab.references().users
    assert [users[path] for path in (*made, dataset, head, export)] == [{"by hand"}] * 5
    assert counted(users[head]) == "by hand"


def test_other_content_is_not_needed(lab: Any) -> None:
    gone = Path("/gone/sweeps/a/p")
    _, other, _ = lab.data(1, by=gone)
    *_, dataset = lab.data(0, by=gone)
    lab.head(1e-3, dataset)
    assert not lab.references().users[other]


def test_sizes_are_those_on_disk_and_stages_within_count_once(full: Any) -> None:
    lab, at = full
    blocks = subprocess.run(["du", "-s", "--block-size=1", str(at["head"])], capture_output=True, text=True, check=True)
    head = lab.entry(at["head"])
    assert head.whole == head.bytes + lab.entry(at["export"]).bytes
    assert head.whole == int(blocks.stdout.split()[0])
    sparse = lab.root / "sparse"
    with sparse.open("wb") as f:
        f.truncate(10**9)
    (lab.root / "link").symlink_to(at["head"])
    assert weigh([sparse, lab.root / "link"])[0] < 10**5


def test_states(lab: Any) -> None:
    half = lab.stage("heads", "tiny", {"n": 1}, {"checkpoints/step=8.ckpt": 9}, done=False)
    assert lab.entry(half).state == "in progress"
    with locked(half):
        assert lab.entry(half).state == "in use"
    assert lab.entry(half).state == "in progress"
    for text in ("{", "[]", "{}", '{"digest": "0123456789abcdef"}'):
        (half / "manifest.json").write_text(text)
        assert lab.entry(half).state == "torn"


def test_another_process_s_lock_is_seen(lab: Any) -> None:
    path = lab.stage("datasets", "d", {"n": 1}, {})
    code = "import sys, pathlib\nfrom eagle_lab.config.stage import locked\n"
    code += "with locked(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    args = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        assert lab.entry(path).state == "in use"
    assert lab.entry(path).state == "done"


def test_what_others_put_there_is_foreign(full: Any) -> None:
    lab, at = full
    theirs = [lab.root / "notes.txt", lab.root / "heads/mine", at["head"] / "why.md", at["head"] / "checkpoints/x.pt"]
    theirs += [lab.root / "datasets/named-like-0123456789ab", lab.root / "heads/.x.trash"]  # without a lock, a digest
    for path in theirs[:1] + theirs[2:4]:
        path.write_text("mine")
    for path in (theirs[1], *theirs[4:]):
        path.mkdir()
    linked = lab.root / "heads/linked-0123456789ab"
    linked.symlink_to(at["head"])
    assert inventory.outputs(lab.root).foreign == sorted([*theirs, linked])


def test_made_says_when_it_was_finished(full: Any) -> None:
    lab, at = full
    os.utime(at["head"] / "manifest.json", (1e9, 1e9))
    assert lab.entry(at["head"]).written == 1e9


def test_cached(lab: Any) -> None:
    for name in ("targets/tiny-0123456789ab", "suites/mt-0123456789ab", "targets/.half.partial"):
        (lab.cache / name).mkdir(parents=True)
        (lab.cache / name / "config.json").write_text("{}")
    assert [(e.kind, e.path.name) for e in inventory.cached(lab.cache)] == [
        ("targets", "tiny-0123456789ab"),
        ("suites", "mt-0123456789ab"),
    ]
    assert inventory.cached(lab.cache / "none") == []


def test_no_outputs(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"paths\.outputs=.*none: no such directory"):
        inventory.outputs(tmp_path / "none")
