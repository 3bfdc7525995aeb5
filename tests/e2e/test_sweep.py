"""A sweep on real servers: shared where it may, killed at random moments, and equal to one that was left alone."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from tests.known_acceptance import CPU, known_pair

NAMES = (
    "spec",
    "accept_length",
    "accept_length_low",
    "accept_length_high",
    "histogram",
    "max_new_tokens",
    "head_digest",
)


def summary(outputs: Path, name: str) -> list[dict[str, str]]:
    with (outputs / f"sweeps/{name}/summary.csv").open() as f:
        return [{n: row[n] for n in NAMES} for row in csv.DictReader(f)]


def kill_at(lab: Lab, seconds: float, *arguments: str) -> None:
    child = lab.start(*arguments)
    time.sleep(seconds)
    assert child.poll() is None, child.communicate()[0]
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def killed_equals_unkilled(lab: Lab, kills: int, name: str, *arguments: str) -> float:
    """The share of the unkilled sweep, its launch and report included, in which no point was at work."""
    began = time.monotonic()
    child = lab.start(*arguments, f"name={name}", "paths.outputs=whole")
    idle: list[bool] = []
    watch = threading.Thread(target=watch_points, args=(child, idle))
    watch.start()
    text, _ = child.communicate(timeout=2400)
    watch.join()
    assert child.returncode == 0, text
    took = time.monotonic() - began
    # text that the target samples is not the same twice: both train on the same prompts
    if (prompts := lab.folder / "whole/prompts").exists():
        shutil.copytree(prompts, lab.folder / "killed/prompts")
    for moment in sorted(random.Random(7).uniform(0.1, 0.5) for _ in range(kills)):
        kill_at(lab, moment * took, *arguments, f"name={name}", "paths.outputs=killed")
    code, text = lab.run(*arguments, f"name={name}", "paths.outputs=killed", timeout=2400)
    assert code == 0, text
    whole, killed = (summary(lab.folder / o, name) for o in ("whole", "killed"))
    assert whole == killed
    assert not list((lab.folder / "killed").rglob("*.tmp"))
    return sum(idle) / len(idle)


def watch_points(sweep: subprocess.Popen[str], idle: list[bool]) -> None:
    children = Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children")
    while sweep.poll() is None:
        with suppress(OSError):
            idle.append(not children.read_text().strip())
        time.sleep(0.1)


@pytest.fixture(scope="module")
def known(lab: Lab) -> list[str]:
    """Arguments that name the known target, its head and a CPU server."""
    _, head = known_pair(lab.folder / "known")
    server = [f"server.{k}={getattr(CPU, k)}" for k in ("context_length", "max_running_requests", "max_total_tokens")]
    return ["target=known_acceptance", "draft=known_acceptance", f"head={head}", "server=cpu", *server, "track=none"]


GRID = ("suite.max_new_tokens=12,24", "suite.limit=6", "suite.concurrency=2")


def test_a_killed_sweep_equals_an_unkilled_one(lab: Lab, known: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On an engine that starts in a second; the real one is for the long test."""
    path = os.pathsep.join([str(Path(__file__).parent / "engine"), lab.environment["PYTHONPATH"]])
    monkeypatch.setitem(lab.environment, "PYTHONPATH", path)
    killed_equals_unkilled(lab, 1, "killed", "bench", *known, "head=null", "--multirun", *GRID)
    assert [r["max_new_tokens"] for r in summary(lab.folder / "whole", "killed")] == ["12", "24"]
    assert started(lab.folder / "whole") == 1, "points that differ in their prompts alone share a server"


def started(outputs: Path) -> int:
    """Measurements that started a server; the others took one that was kept."""
    logs = [log.read_text() for log in outputs.glob("measurements/*/server.log")]
    assert len(logs) > 1
    return sum(not re.fullmatch(r"the server of .*, kept\n", log) for log in logs)


@pytest.mark.server
@pytest.mark.long
def test_points_share_a_server(lab: Lab, known: list[str]) -> None:
    grid = ["spec=none,chain_3", *GRID, "suite.timed=false", "name=two", "paths.outputs=shared"]
    code, text = lab.run("bench", *known, "--multirun", *grid)
    assert code == 0, text
    outputs = lab.folder / "shared"
    with (outputs / "sweeps/two/summary.csv").open() as f:
        rows = list(csv.DictReader(f))
    grid_rows = [("none", "12"), ("chain_3", "12"), ("none", "24"), ("chain_3", "24")]
    assert [(r["spec"], r["max_new_tokens"]) for r in rows] == grid_rows
    for chain in rows[1::2]:
        assert (chain["tok_s"], chain["speedup"], chain["differing_prompts"]) == ("", "", "0")
        assert chain["captured_width"] == "192"
    assert started(outputs) == 1, "plain decoding starts one server, the proof another that measures too"
    assert len(json.loads((outputs / "sweeps/two/plan.json").read_text())["points"]) == 4


@pytest.mark.server
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_draft_tokens_sweep_of_the_real_target(lab: Lab, record_property: Callable[..., None]) -> None:
    root = Path(__file__).resolve().parents[2]
    small = ["target=smollm2_135m", "server=cpu", "suite.limit=8", "suite.max_new_tokens=32", "track=none"]
    small += ["suite.trace=false"]  # a second pass of each point, which nothing here reads
    training = ["experiment=demo_tiny", "data.answers.max_new_tokens=32", "trainer.max_epochs=2"]
    grid = ["spec=none,chain_2,chain_5,chain_8,chain_16,tree_12"]
    sweep = ["bench", "-cd", str(root / "sweeps"), "-cn", "draft_tokens", *training, *small, *grid]
    idle = killed_equals_unkilled(lab, 3, "draft_tokens", *sweep)
    record_property("idle share", round(idle, 4))
    assert idle <= 0.05
    assert len(summary(lab.folder / "whole", "draft_tokens")) == 6
