"""Tracking never blocks, never writes outside the run's directory, and ends with the right exit code."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import conf_dir
from eagle_lab.track import weights_and_biases
from eagle_lab.track.tracker import Artifact, NullTracker, row_summary, tracker
from tests.track.offline import offline_runs

ROOT = Path(__file__).resolve().parents[2]


def config(tmp_path, *overrides):
    load.register()

    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return load.load(compose("bench", [f"paths.outputs={tmp_path}", *overrides]))


def say_everything(track):
    head = Artifact("model", "eagle3-t", "0a", [Path(__file__)], {"layers": [1, 2]})
    track.log({"loss": 1.0}, step=1)
    track.summary({"tok_s": 3.0})
    track.link(target="t", head=None)
    track.made(head)
    track.used(head)


def test_none_is_a_null_object(tmp_path):
    with tracker(config(tmp_path, "track=none"), tmp_path / "out", "bench") as track:
        assert isinstance(track, NullTracker)
        say_everything(track)
    assert not (tmp_path / "out").exists()


def test_the_summary_of_rows():
    row = {
        "spec": "chain_2",
        "tok_s": 3.5,
        "head": None,
        "probe": "0a",
        "histogram": [4, 0, 2],
        "survival": [0.5, 0.25],
    }
    row |= {
        "survival": [0.5, 0.25],
        "conditional": [0.5, None],
        "aux_layers": [2, 4],
        "prompts": {"a": [1, 2]},
        "divergences": [],
    }
    assert row_summary([{"spec": "none", "tok_s": 7.0, "aux_layers": None, "histogram": []}, row]) == {
        "none/spec": "none",
        "none/tok_s": 7.0,
        "spec": "chain_2",
        "tok_s": 3.5,
        "probe": "0a",
        "histogram/0": 4,
        "histogram/1": 0,
        "histogram/2": 2,
        "survival/1": 0.5,
        "survival/2": 0.25,
        "conditional/1": 0.5,
        "aux_layers": [2, 4],
    }
    assert row_summary([{"spec": "none", "tok_s": 7.0}]) == {"spec": "none", "tok_s": 7.0}


def test_the_id_follows_the_content_and_the_point(tmp_path):
    def identity(*overrides, out=tmp_path, job="bench"):
        return weights_and_biases.settings(config(tmp_path, *overrides), out, job)["id"]

    assert identity() == identity("track.project=other", "paths.cache=/elsewhere")
    assert len({identity(), identity("seed=1"), identity("name=other"), identity(job="train")}) == 4


def test_a_sweep_point_is_grouped_by_its_sweep(tmp_path):
    point = tmp_path / "spec=chain_5-0a"
    point.mkdir()
    alone = weights_and_biases.settings(config(tmp_path, "name=grid"), point, "bench")
    assert (alone["name"], alone["group"]) == ("grid", None)
    (point / "status.json").write_text("{}")
    found = weights_and_biases.settings(config(tmp_path, "name=grid"), point, "bench")
    assert (found["name"], found["group"], found["job_type"]) == ("spec=chain_5-0a", "grid", "bench")
    assert found["config"]["suite"]["name"] == "smoke"


def test_mode(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    assert weights_and_biases.mode(config(tmp_path)) == "offline", "no key"
    monkeypatch.setattr(weights_and_biases, "_reachable", lambda base: True)
    (home / ".netrc").write_text("machine api.wandb.ai login user password secret\n")
    (home / ".netrc").chmod(0o600)
    assert weights_and_biases.mode(config(tmp_path)) == "online"
    (home / ".netrc").unlink()
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert weights_and_biases.mode(config(tmp_path)) == "online"
    assert weights_and_biases.mode(config(tmp_path, "track.mode=offline")) == "offline"
    monkeypatch.setattr(weights_and_biases, "_reachable", lambda base: False)
    assert weights_and_biases.mode(config(tmp_path, "track.mode=online")) == "offline", "no network"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert weights_and_biases.mode(config(tmp_path, "track.mode=online")) == "disabled"


def test_a_closed_port_is_not_reachable():
    assert not weights_and_biases._reachable("http://127.0.0.1:9")


class FakeRun:
    def __init__(self):
        self.summary, self.codes = {}, []

    def finish(self, exit_code):
        self.codes.append(exit_code)


@pytest.mark.parametrize(("error", "code"), [(None, 0), (LabError, 1), (KeyboardInterrupt, 1), (SystemExit, 1)])
def test_a_run_ends_as_its_block_does(tmp_path, monkeypatch, error, code):
    run = FakeRun()
    monkeypatch.setattr(weights_and_biases, "start", lambda *_: run)
    with contextlib.suppress(BaseException), tracker(config(tmp_path), tmp_path, "bench") as track:
        track.summary({"spec": "chain_5", "tok_s": 3.0})
        if error:
            raise error
    assert run.codes == [code]
    assert run.summary == {"spec": "chain_5", "tok_s": 3.0}


PROGRAM = """
import sys
from contextlib import nullcontext
from pathlib import Path
from hydra import compose, initialize_config_dir
from eagle_lab.config import load
from eagle_lab.config.paths import conf_dir
from eagle_lab.sweep.child import run_job
from eagle_lab.track.tracker import Artifact, tracker

def body(config, out):
    with tracker(config, out, "bench") as track:
        (out / "head").write_text("weights")
        track.log({"train/loss": 2.0}, step=7)
        track.link(target="t1", head=None)
        track.link(head="h1")
        head = Artifact("model", "eagle3-a b", "0a1b", [Path(out.name) / "head"], {"layers": [1, 2], "sha": None})
        track.made(head)
        track.used(head)
        track.summary({"accept_length": 1.5})
        (out / "started").touch()
        END

sys.exit(run_job([Path(sys.argv[1])], lambda verb: body, nullcontext))
"""


def start(point, end, **variables):
    load.register()
    point.mkdir()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        load.dump(load.load(compose("bench", ["name=grid"])), point / "config.yaml")
    (point / "status.json").write_text(json.dumps({"state": "planned", "verb": "bench"}))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("END", end), point.name],
        env={**os.environ, "PYTHONPATH": path, **variables},
        cwd=point.parent,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_offline_in_a_process_of_its_own_that_fails(tmp_path):
    # a key, and a server that cannot be reached: it may not wait for it
    child = start(tmp_path / "p", "1 / 0", WANDB_API_KEY="0" * 40, WANDB_BASE_URL="http://127.0.0.1:9")
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 1
    assert "ZeroDivisionError" in json.loads((tmp_path / "p/status.json").read_text())["error"]
    assert "cannot be reached" in errors
    (run,) = offline_runs(tmp_path)
    assert run.directory.parent == tmp_path / "p/wandb"
    assert (run.exit_code, run.name, run.group, run.job_type) == (1, "p", "grid", "bench")
    assert run.history == [{"_step": 7, "train/loss": 2.0}]
    assert run.summary == {"train/loss": 2.0, "accept_length": 1.5}
    assert run.config["lineage"] == {"target": "t1", "head": "h1"}
    assert run.artifacts == [
        {
            "type": "model",
            "name": "eagle3-a-b",
            "aliases": ["0a1b", "latest"],
            "metadata": {"layers": [1, 2], "sha": None},
            "files": {"head": str(tmp_path / "p/head")},
        }
    ]
    assert not (tmp_path / "wandb").exists()
    assert not (tmp_path / "home/.local").exists(), "artifacts are not copied"


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["the process", "its group, W&B's service too"])
def test_a_point_that_is_terminated_ends_its_run_as_failed(tmp_path, send):
    child = start(tmp_path / "p", "import time; time.sleep(120)")
    while not (tmp_path / "p/started").exists():
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.1)
    send(child.pid, signal.SIGTERM)
    child.communicate(timeout=60)
    (run,) = offline_runs(tmp_path)
    assert run.exit_code == 1
    assert run.summary["accept_length"] == 1.5
    assert json.loads((tmp_path / "p/status.json").read_text())["state"] == "interrupted"


def test_a_run_outlives_the_service(tmp_path):
    kill = (
        "import os, signal, subprocess, time\n"
        "        core, = subprocess.check_output(['pgrep', '-P', str(os.getpid()), 'wandb-core'], text=True).split()\n"
        "        os.kill(int(core), signal.SIGKILL)\n"
        "        time.sleep(0.5)\n"
        "        for step in range(8, 12): track.log({'train/loss': 1.0}, step=step)\n"
        "        track.link(head='h2')\n"
        "        track.made(head)\n"
        "        return 0"
    )
    child = start(tmp_path / "p", kill)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    assert errors.count("from here on this run is on disk only") == 1
    assert json.loads((tmp_path / "p/status.json").read_text())["state"] == "done"


def test_a_service_that_does_not_start_disables_the_run(tmp_path, monkeypatch, capsys):
    import wandb

    init, modes = wandb.init, []

    def refuse(mode, **arguments):
        modes.append(mode)
        if mode != "disabled":
            raise wandb.errors.CommError("no service")
        return init(mode=mode, **arguments)

    monkeypatch.setattr(wandb, "init", refuse)
    monkeypatch.setattr(weights_and_biases, "mode", lambda config: "online")
    with tracker(config(tmp_path), tmp_path / "out", "bench") as track:
        say_everything(track)
    assert modes == ["online", "offline", "disabled"]
    assert "wandb, offline: no service" in capsys.readouterr().err


class OnlineRun:
    """Stands for a run with a server: what it is asked, and how the server takes it."""

    offline = disabled = False

    def __init__(self, answer):
        self.answer, self.used, self.codes = answer, [], []

    def use_artifact(self, artifact, aliases):
        self.answer()
        self.used.append((artifact.type, artifact.name, aliases))

    def finish(self, exit_code):
        self.codes.append(exit_code)


def refuse():
    raise RuntimeError("no such project")


@pytest.mark.parametrize(
    ("answer", "used"),
    [(lambda: None, [("model", "eagle3-t", ["0a"])]), (refuse, []), (lambda: time.sleep(60), [])],
    ids=["takes it", "refuses", "does not answer"],
)
def test_inputs_are_recorded_online_and_neither_stop_nor_stall_a_run(tmp_path, monkeypatch, capsys, answer, used):
    run = OnlineRun(answer)
    monkeypatch.setattr(weights_and_biases, "start", lambda *_: run)
    monkeypatch.setattr(weights_and_biases, "FINISH_TIMEOUT_S", 1)
    begun = time.monotonic()
    with tracker(config(tmp_path), tmp_path, "bench") as track:
        track.used(Artifact("model", "eagle3-t", "0a", [], {}))
    assert time.monotonic() - begun < 30
    assert (run.used, run.codes) == (used, [0])
    assert ("eagle3-t:0a is not recorded as an input: no such project" in capsys.readouterr().err) == (answer is refuse)


def test_a_disabled_run_takes_everything(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with tracker(config(tmp_path), tmp_path / "out", "bench") as track:
        say_everything(track)
    assert offline_runs(tmp_path) == []
