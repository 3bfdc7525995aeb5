"""Stages: reused when done, redone when killed, and never worked on by two processes at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.stage import stage

WORK = """
import os, sys, time
from pathlib import Path
from eagle_lab.config.stage import stage
root, pause = Path(sys.argv[1]), float(sys.argv[2])
with stage(root, "datasets", "x", {"n": 1}) as work:
    if work.manifest is None:
        with (root / "worked").open("a") as f:
            f.write(f"{os.getpid()}\\n")
        print("in", flush=True)
        time.sleep(pause)
        work.finish({"rows": 3})
    print("reused" if work.reused else "done", flush=True)
"""


def start(root: Path, pause: float) -> subprocess.Popen[str]:
    args = [sys.executable, "-c", WORK, str(root), str(pause)]
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_done_once(tmp_path: Path) -> None:
    with stage(tmp_path, "datasets", "x", {"n": 1}) as first:
        assert first.manifest is None
        first.finish({"rows": 3, "where": Path("/a")})
    with stage(tmp_path, "datasets", "x", {"n": 1}) as second:
        assert second.reused
        assert second.manifest is not None
        assert (second.manifest["rows"], second.manifest["where"]) == (3, "/a")
        assert second.manifest["provenance"]["versions"]["python"]
    assert second.path == first.path
    with stage(tmp_path, "datasets", "x", {"n": 2}) as other:
        assert other.manifest is None
        assert other.path != first.path


def test_unfinished_work_is_taken_up(tmp_path: Path) -> None:
    with stage(tmp_path, "datasets", "x", {"n": 1}) as work:
        (work.path / "rows.jsonl").write_text("half")
    with stage(tmp_path, "datasets", "x", {"n": 1}) as again:
        assert again.manifest is None
        assert (again.path / "rows.jsonl").read_text() == "half"


def test_a_copied_manifest_is_refused(tmp_path: Path) -> None:
    with stage(tmp_path, "datasets", "x", {"n": 1}) as work:
        manifest = work.finish({})
    (work.path / "manifest.json").write_text(json.dumps(manifest | {"digest": "0" * 16}))
    with (
        pytest.raises(LabError, match=r"its digest 0000000000000000 is not .*Remove .* to redo"),
        stage(tmp_path, "datasets", "x", {"n": 1}),
    ):
        pass


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    first = start(tmp_path, 1.0)
    assert first.stdout is not None
    assert first.stdout.readline() == "in\n"
    second = start(tmp_path, 1.0)
    out, err = second.communicate(timeout=60)
    assert out == "reused\n"
    assert "waiting for another process" in err
    assert first.communicate(timeout=60)[0] == "done\n"
    assert len((tmp_path / "worked").read_text().split()) == 1


def test_a_killed_holder_frees_the_stage(tmp_path: Path) -> None:
    first = start(tmp_path, 60)
    assert first.stdout is not None
    assert first.stdout.readline() == "in\n"
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    out, err = start(tmp_path, 0).communicate(timeout=60)
    assert out == "in\ndone\n"
    assert "waiting" not in err


def test_what_a_killed_run_was_writing_is_swept_away(tmp_path: Path) -> None:
    with stage(tmp_path, "heads", "x", {"a": 1}) as work:
        torn = work.path / ".config.json.123.tmp"
        torn.write_text("{")
    with stage(tmp_path, "heads", "x", {"a": 1}):
        assert not torn.exists()


def finish(root: Path) -> Path:
    with stage(root, "heads", "x", {"a": 1}) as work:
        for name in ("head.safetensors", "rows.jsonl", "server.log", ".hidden"):
            (work.path / name).write_text(f"whole {name}")
        (work.path / "checkpoints").mkdir()
        (work.path / "checkpoints/step=1.ckpt").write_text("whole")
        work.finish({"rows": 1})
    return work.path


def reuse(root: Path) -> None:
    with stage(root, "heads", "x", {"a": 1}) as work:
        assert work.reused


def test_the_manifest_knows_the_stages_files(tmp_path: Path) -> None:
    files = json.loads((finish(tmp_path) / "manifest.json").read_text())["files"]
    assert files.keys() == {"head.safetensors", "rows.jsonl"}
    assert files["rows.jsonl"] == {"size": 16, "digest": "a2e68434681413f6"}


@pytest.mark.parametrize("name", ["head.safetensors", "rows.jsonl"])
@pytest.mark.parametrize(
    ("content", "found"),
    [(b"whole", "5 bytes"), (b"", "0 bytes"), (b"WHOLE rows.jsonl", "16 bytes"), (None, "no file")],
)
def test_a_finished_stage_that_was_touched_is_refused(tmp_path: Path, name: str, content, found: str) -> None:
    path = finish(tmp_path)
    (path / name).unlink()
    if content is not None:
        (path / name).write_bytes(content)
    with pytest.raises(LabError) as e:
        reuse(tmp_path)
    assert str(e.value).startswith(f"{path / name}: {found}")
    assert str(e.value).endswith(f"expected. Remove {path} to redo the stage.")


def test_logs_checkpoints_and_what_was_put_there_later_may_change(tmp_path: Path) -> None:
    path = finish(tmp_path)
    for name in ("server.log", ".hidden", "checkpoints/step=1.ckpt", "notes.txt"):
        (path / name).write_text("changed")
    reuse(tmp_path)


def test_a_manifest_from_before_there_were_digests(tmp_path: Path) -> None:
    file = finish(tmp_path) / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["files"]
    file.write_text(json.dumps(manifest))
    (file.parent / "rows.jsonl").write_text("changed")
    reuse(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"digest": 1}', '{"digest": "a", "files": {"rows.jsonl": 3}}'])
def test_a_broken_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (finish(tmp_path) / "manifest.json").write_text(text)
    with pytest.raises(LabError, match=r"manifest\.json"):
        reuse(tmp_path)
