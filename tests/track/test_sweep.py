"""What W&B records offline of a sweep equals what the sweep leaves on disk: rows, group, names, job type and config.

The sweep is real, its points' processes too; only the measurements were made before, by a fake server.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from eagle_lab.cli import bench
from eagle_lab.config import load
from eagle_lab.config.digest import plain
from eagle_lab.config.files import read_jsonl
from eagle_lab.config.paths import conf_dir
from eagle_lab.doctor.registry import CHECKS
from eagle_lab.evaluate import bench as bench_module
from eagle_lab.evaluate import measure as measure_module
from eagle_lab.serve import chat
from eagle_lab.track.tracker import NOWHERE
from tests.evaluate.conftest import FakeServing, FakeTokenizer
from tests.track.offline import offline_runs
from tests.track.rows import assert_equals_the_point

ROOT = Path(__file__).resolve().parents[2]
SPECS = ("none", "chain_5", "tree_12")


@pytest.fixture
def overrides(tmp_path, head) -> list[str]:
    suite = tmp_path / "suite.jsonl"
    suite.write_text("".join(f'{{"id": "{i}", "turns": ["question {"and " * i}"]}}\n' for i in range(3)))
    mine = ["suite=jsonl", "suite.name=three", f"suite.path={suite}", "suite.max_new_tokens=13", "suite.replay=0"]
    places = [f"paths.outputs={tmp_path / 'outputs'}", f"paths.cache={tmp_path / 'cache'}", f"head={head}"]
    nobodys = f"doctor.ignore=[{','.join(check.NAME for check in CHECKS)}]"  # the head is a fake
    return ["name=grid", "target=tiny", "server=cpu", "draft.vocab_size=256", nobodys, *mine, *places]


def run(verb: str, overrides: list[str], *more: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    argv = [sys.executable, "-m", "eagle_lab", verb, *overrides, "--multirun", *more]
    return subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300)


def test_the_files_of_three_points_equal_the_sweep(tmp_path, head, overrides, monkeypatch):
    load.register()
    with monkeypatch.context() as fake, initialize_config_dir(str(conf_dir()), version_base="1.3"):
        fake.setattr(measure_module, "serving", FakeServing())
        fake.setattr(measure_module, "check_counters", lambda client, proof: None)
        fake.setattr(
            bench_module, "probe", lambda launch, width, prompts, log: {"captured_width": width, "counters": []}
        )
        fake.setattr(chat, "load_tokenizer", lambda path: FakeTokenizer())
        for spec in SPECS:
            config = load.load(compose("run", [*overrides, f"spec={spec}"]))
            bench.measured(config, tmp_path / spec, NOWHERE)
    done = run("run", overrides, f"spec={','.join(SPECS)}")
    assert done.returncode == 0, done.stderr
    sweep = tmp_path / "outputs/sweeps/grid"
    points = sorted(p.parent for p in sweep.glob("*/status.json"))
    assert [p.name.rsplit("-", 1)[0] for p in points] == [f"spec={spec}" for spec in sorted(SPECS)]
    for point, spec in zip(points, sorted(SPECS), strict=True):
        (found,) = offline_runs(point)
        rows = read_jsonl(point / "rows.jsonl")
        assert_equals_the_point(found, point, "grid", "run")
        config = load.load_file(point / "config.yaml")
        assert config.spec.kind.value in spec
        head_lineage = {"dataset": "d" * 16, "training": "a" * 16, "head": rows[-1]["head_digest"]}
        assert found.config == {
            **plain(config),
            "lineage": {
                "target": rows[0]["target_digest"],
                **({} if spec == "none" else head_lineage),
                "evaluation": {row["spec"]: row["fingerprint"] for row in rows},
            },
        }
        assert found.summary["spec"] == rows[-1]["spec"]
        assert found.history == []
        assert found.artifacts == [], "an input, which offline runs cannot have"
    # a list by position: accepted drafts are counted from 0, drafts from 1
    assert found.summary["histogram/0"] == 0
    assert found.summary["histogram/2"] == 12
    assert (found.summary["survival/1"], found.summary["conditional/2"]) == (1.0, 1.0)
    assert found.summary["none/accept_length"] == 1.0
    assert not (tmp_path / "home/.local").exists(), "no copies of artifacts"


def test_a_point_that_fails_ends_its_run_as_failed(tmp_path, head, overrides):
    (head / "model.safetensors").write_bytes(b"torn")
    assert run("export", overrides).returncode == 1
    (point,) = (tmp_path / "outputs/sweeps/grid").glob("*/status.json")
    (found,) = offline_runs(point.parent)
    assert (found.exit_code, found.group, found.name, found.job_type) == (1, "grid", point.parent.name, "export")
    assert found.config == plain(load.load_file(point.parent / "config.yaml"))
