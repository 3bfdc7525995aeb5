"""Tracking never blocks, never writes outside the run's directory, and ends with the right exit code."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import conf_dir
from eagle_lab.track import weights_and_biases
from eagle_lab.track.lightning import lightning_logger
from eagle_lab.track.tracker import NullTracker, tracker

ROOT = Path(__file__).resolve().parents[2]


def config(tmp_path, *overrides):
    load.register()

    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return load.load(compose("bench", [f"paths.outputs={tmp_path}", *overrides]))


@pytest.fixture(autouse=True)
def no_key(monkeypatch, tmp_path):
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_none_is_a_null_object(tmp_path):
    with tracker(config(tmp_path, "track=none"), tmp_path / "out", "bench") as track:
        assert isinstance(track, NullTracker)
        track.log({"loss": 1.0}, step=1)
        track.log_row({"spec": "none"})
    assert lightning_logger(config(tmp_path, "track=none"), tmp_path) is None
    assert not (tmp_path / "out").exists()


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


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_tracker import config
from eagle_lab.config.files import write_json
from eagle_lab.track.lightning import lightning_logger
from eagle_lab.track.tracker import tracker
out = Path(sys.argv[1])
with tracker(config(out), out, "train") as track:
    run = track.run
    try:
        logger = lightning_logger(config(out), out)
        assert logger.experiment is run
        logger.log_metrics({"loss": 2.0}, step=1)
        track.log_row({"spec": "chain_5", "accept_length": 1.5, "histogram": [1, 2], "head": None})
        track.log_row({"spec": "none", "accept_length": 1.0})
        raise ZeroDivisionError("on purpose")
    finally:
        summary = {k: run.summary[k] for k in run.summary.keys()}
        write_json(out / "seen.json", {"id": run.id, "offline": run.offline, "summary": summary})
"""


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
        track.log_row({"spec": "chain_5", "tok_s": 3.0})
        if error:
            raise error
    assert run.codes == [code]
    assert run.summary == {"spec": "chain_5", "tok_s": 3.0}


def test_offline_in_a_process_of_its_own_that_fails(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    # a key, and a server that cannot be reached: it may not wait for it
    env = {**os.environ, "PYTHONPATH": path, "WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    argv = [sys.executable, "-c", PROGRAM, str(out), str(Path(__file__).parent)]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "ZeroDivisionError: on purpose" in done.stderr
    assert "cannot be reached" in done.stderr
    seen = json.loads((out / "seen.json").read_text())
    assert seen["offline"]
    assert seen["summary"]["accept_length"] == 1.5
    assert seen["summary"]["none/accept_length"] == 1.0
    assert seen["summary"]["loss"] == 2.0
    (record,) = (out / "wandb").glob(f"offline-run-*/run-{seen['id']}.wandb")
    assert record.stat().st_size > 0
    assert not (tmp_path / "wandb").exists()
