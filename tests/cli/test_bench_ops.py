"""bench-ops by its command: rows on disk, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from eagle_lab.cli.bench_ops import run
from eagle_lab.config import load
from eagle_lab.config.errors import LabError

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("target=tiny", "draft.vocab_size=64", "trainer.accelerator=cpu", "bench_ops.tokens=32", "bench_ops.repeats=2")


def bench_ops(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "eagle_lab", "bench-ops", *SMALL, *args]
    return subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def test_rows_say_what_was_timed_where(tmp_path: Path) -> None:
    done = bench_ops(tmp_path, "bench_ops.cases=[swiglu,unroll_attention]", "loss.unroll_steps=2")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "outputs/runs/bench-ops/bench-ops/ops.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(r["op"], r["impl"]) for r in rows] == [("swiglu", "reference"), ("unroll_attention", "reference")]
    assert all(r["rows"] == 31 and r["hardware"] == "CPU" and r["ms"] > 0 for r in rows)
    assert rows[0]["provenance"]["versions"]["torch"]


def test_a_fault_is_one_paragraph(tmp_path: Path) -> None:
    done = bench_ops(tmp_path, "bench_ops.cases=[swigloo]")
    assert done.returncode == 2, done.stderr
    assert "bench_ops.cases: swigloo is none of rms_norm" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["bench_ops.supervised=0"], "bench_ops.supervised=0"),
        (["bench_ops.tokens=1"], "bench_ops.tokens=1"),
        (["ops=triton"], "Triton kernels need a GPU"),
        (["target=hf", "target.path=/x", "target.name=x"], "target x: unknown num_hidden_layers"),
    ],
)
def test_faults(composed: Callable[..., DictConfig], tmp_path: Path, args: list[str], says: str) -> None:
    with pytest.raises(LabError, match=says):
        run(load.load(composed("bench-ops", *SMALL, *args)), tmp_path)
    assert not list(tmp_path.iterdir())
