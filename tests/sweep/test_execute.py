"""Sweeps of real child processes: what ends in status.json, what the parent returns, what a second launch runs."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.sweep.execute import status

ROOT = Path(__file__).resolve().parents[2]


def command(outputs: Path, heads: str) -> list[str]:
    overrides = [f"target.name={heads}", "name=sweep", f"paths.outputs={outputs}", "target=tiny", "track=none"]
    # the tiny vocabulary is smaller than the default draft vocab
    return [sys.executable, "-m", "eagle_lab", "plan", "--multirun", "draft.vocab_size=256", *overrides]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(__file__).parent / "verbs"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def launch(outputs: Path, heads: str) -> subprocess.CompletedProcess:
    return subprocess.run(command(outputs, heads), env=environment(), capture_output=True, text=True, timeout=120)


def point(outputs: Path, head: str) -> Path:
    (found,) = (outputs / "plans/sweep").glob(f"*name={head}*")
    return found


def state(outputs: Path, head: str) -> dict:
    return json.loads((point(outputs, head) / "status.json").read_text())


def runs(outputs: Path, head: str) -> int:
    return len((point(outputs, head) / "runs").read_text().splitlines())


def wait_for(condition, timeout: float = 60):
    end = time.time() + timeout
    while time.time() < end:
        with suppress(OSError, ValueError, AssertionError):
            if value := condition():
                return value
        time.sleep(0.1)
    pytest.fail("timed out")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # a child whose parent was killed may stay as a zombie where nobody reaps it
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_failures_are_named_and_keep_no_other_point_from_running_and_only_they_run_again(tmp_path):
    heads = "fault,ok,bug,killed,three,input"
    first = launch(tmp_path, heads)
    assert first.returncode == 1
    assert state(tmp_path, "ok")["state"] == "done"
    expected = {
        "fault": ("the server is down. Start it.", 3),
        "input": ("no such thing.", 2),
        "bug": ("ZeroDivisionError: a bug", 1),
        "killed": ("the point's process was killed by signal SIGKILL", -9),
        "three": ("plan returned 3", 3),
    }
    for head, (error, code) in expected.items():
        found = state(tmp_path, head)
        assert (found["state"], found["error"], found["exit_code"]) == ("failed", error, code)
        assert f"{point(tmp_path, head)}: {error}" in first.stderr
    assert "Traceback" in state(tmp_path, "bug")["traceback"]
    assert "5 of 6 points failed" in first.stderr

    plan = json.loads((tmp_path / "plans/sweep/plan.json").read_text())
    assert plan["argv"][:2] == ["eagle-lab", "plan"]
    assert sorted(p["point"] for p in plan["points"]) == sorted(point(tmp_path, h).name for h in heads.split(","))
    assert len({p["digest"] for p in plan["points"]}) == 6

    (tmp_path / "mended").touch()
    second = launch(tmp_path, heads)
    assert second.returncode == 0
    assert second.stdout.count("done already") == 1
    for head in heads.split(","):
        assert state(tmp_path, head)["state"] == "done"
        assert runs(tmp_path, head) == (1 if head == "ok" else 2)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_sweep_lets_its_point_clean_up_and_can_be_taken_up(tmp_path, sig):
    sweep = subprocess.Popen(command(tmp_path, "slow,ok"), env=environment(), start_new_session=True)
    wait_for(lambda: (point(tmp_path, "slow") / "started").read_text())
    sweep.send_signal(sig)
    assert sweep.wait(60) == 130
    assert (point(tmp_path, "slow") / "cleaned").exists()
    assert state(tmp_path, "slow")["state"] == "interrupted"
    assert state(tmp_path, "ok")["state"] == "planned"
    (tmp_path / "mended").touch()
    assert launch(tmp_path, "slow,ok").returncode == 0
    assert state(tmp_path, "slow")["state"] == state(tmp_path, "ok")["state"] == "done"


def test_ctrl_c_on_a_terminal_reaches_parent_and_child_and_cleanup_is_not_broken_off(tmp_path):
    sweep = subprocess.Popen(command(tmp_path, "slow"), env=environment(), start_new_session=True)
    wait_for(lambda: (point(tmp_path, "slow") / "started").read_text())
    os.killpg(sweep.pid, signal.SIGINT)
    assert sweep.wait(60) == 130
    assert (point(tmp_path, "slow") / "cleaned").exists()
    assert state(tmp_path, "slow")["state"] == "interrupted"


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux only")
def test_a_sweep_that_is_killed_outright_takes_its_point_along(tmp_path):
    sweep = subprocess.Popen(command(tmp_path, "slow"), env=environment(), start_new_session=True)
    child = int(wait_for(lambda: (point(tmp_path, "slow") / "started").read_text()))
    sweep.kill()
    sweep.wait(60)
    wait_for(lambda: not alive(child))
    assert (point(tmp_path, "slow") / "cleaned").exists()
    assert state(tmp_path, "slow")["state"] == "interrupted"
    (tmp_path / "mended").touch()
    assert launch(tmp_path, "slow").returncode == 0


def test_a_killed_point_fails_and_the_sweep_goes_on(tmp_path):
    sweep = subprocess.Popen(command(tmp_path, "slow,ok"), env=environment(), start_new_session=True)
    child = int(wait_for(lambda: (point(tmp_path, "slow") / "started").read_text()))
    os.kill(child, signal.SIGKILL)
    assert sweep.wait(60) == 1
    assert state(tmp_path, "slow")["state"] == "failed"
    assert "SIGKILL" in state(tmp_path, "slow")["error"]
    assert state(tmp_path, "ok")["state"] == "done"


def test_a_second_launch_waits_for_the_first_and_disturbs_nothing(tmp_path):
    first = subprocess.Popen(command(tmp_path, "slow"), env=environment())
    child = wait_for(lambda: (point(tmp_path, "slow") / "started").read_text())
    second = subprocess.Popen(command(tmp_path, "slow"), env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        assert second.stderr
        assert "waiting for another process" in second.stderr.readline()
        assert state(tmp_path, "slow")["state"] == "running"
        (tmp_path / "mended").touch()
        os.kill(int(child), signal.SIGKILL)
        assert first.wait(60) == 1
        assert second.wait(60) == 0
        assert state(tmp_path, "slow")["state"] == "done"
    finally:
        for sweep in (first, second):
            sweep.kill()
            sweep.communicate()


def test_a_status_left_at_running_is_not_done(tmp_path):
    assert launch(tmp_path, "ok").returncode == 0
    file = point(tmp_path, "ok") / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "state": "running"}))
    assert launch(tmp_path, "ok").returncode == 0
    assert runs(tmp_path, "ok") == 2


def test_other_content_in_the_same_directory_runs_again(tmp_path):
    assert launch(tmp_path, "ok").returncode == 0
    file = point(tmp_path, "ok") / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "digest": "0" * 16}))
    assert launch(tmp_path, "ok").returncode == 0
    assert runs(tmp_path, "ok") == 2


def test_one_illegal_point_starts_nothing(tmp_path):
    argv = [*command(tmp_path, "ok"), "aux=last_three,explicit"]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "aux=explicit" in done.stderr
    assert not list(tmp_path.glob("**/status.json"))


def test_the_child_refuses_a_directory_that_no_sweep_planned(tmp_path):
    argv = [sys.executable, "-m", "eagle_lab", "point", str(tmp_path)]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "no planned sweep point" in done.stderr


@pytest.mark.parametrize(("text", "said"), [("[]", "list found"), ("{}", "no value for state"), ("{", "not JSON")])
def test_a_broken_status_is_named(tmp_path, text, said):
    (tmp_path / "status.json").write_text(text)
    with pytest.raises(LabError) as e:
        status(tmp_path)
    assert str(e.value).startswith(f"{tmp_path}/status.json: {said}")
