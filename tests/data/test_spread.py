"""Training in two processes (gloo, on the CPU) has the single one's curve, and either takes up what the other left."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eagle_lab.cli.stages import train_stage
from eagle_lab.config.errors import LabError, Preempted
from eagle_lab.config.files import read_jsonl
from eagle_lab.config.schema import Keep, Strategy


@pytest.fixture
def prepared(client: Any, configured: Any, jsonl: Any, tmp_path: Path) -> Any:
    """prepared(name, devices): a config whose outputs have the dataset already."""
    rows = [{"turns": [f"Tell me about number {i}"]} for i in range(60)]
    source = jsonl(*rows)

    def make(name: str, devices: int) -> Any:
        config = configured(source, holdout=0.2)
        config.paths.outputs = str(tmp_path / name)
        config.suite.name, config.draft.vocab_size = "smoke", 64
        config.loss.unroll_steps = 2
        t = config.trainer
        t.accelerator, t.batch_size, t.max_epochs, t.checkpoint_every, t.log_every = "cpu", 6, 4, 2, 1
        t.devices, t.num_threads = devices, 1
        config.optim.optimizer = {"_target_": "torch.optim.AdamW", "lr": 1e-3}
        first = tmp_path / "first"
        if name != "first" and not (tmp_path / name).exists():
            for kind in ("prompts", "answers", "datasets"):
                if (first / kind).exists():
                    shutil.copytree(first / kind, tmp_path / name / kind)
        return config

    return make


def curve(stage: Any) -> list[float]:
    return [r["train/loss"] for r in read_jsonl(stage.path / "metrics.jsonl") if "train/loss" in r]


def heads(stage: Any) -> dict[str, torch.Tensor]:
    return load_file(stage.path / "head.safetensors")


@pytest.mark.parametrize("strategy", [Strategy.ddp, pytest.param(Strategy.fsdp, marks=pytest.mark.long)])
def test_two_processes_are_one(prepared: Any, strategy: Strategy) -> None:
    alone = prepared("first", 1)
    alone.trainer.keep = Keep.best
    alone, config = train_stage(alone), prepared("second", 2)
    config.trainer.accumulate, config.trainer.strategy, config.trainer.keep = 2, strategy, Keep.best
    both = train_stage(config)
    assert len(curve(alone)) == alone.manifest["steps"] > 20
    assert curve(both) == pytest.approx(curve(alone), rel=1e-4)
    for name, tensor in heads(alone).items():
        torch.testing.assert_close(heads(both)[name], tensor, atol=1e-3, rtol=1e-2)
    assert both.manifest["metrics"]["loss_0"] == pytest.approx(alone.manifest["metrics"]["loss_0"], rel=1e-3)
    assert both.manifest["trained_tokens"] == alone.manifest["trained_tokens"]
    left = {p.name for p in both.path.iterdir()} - {p.name for p in alone.path.iterdir()}
    assert not left


def stopped(config: Any, after: int) -> None:
    """Trains until step `after` has a checkpoint, then is told to stop."""

    def watch() -> None:
        folder = Path(config.paths.outputs) / "heads"
        while not any(int(p.stem.split("=")[1]) >= after for p in folder.glob("*/checkpoints/step=*.ckpt")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    with pytest.raises(Preempted):
        train_stage(config)
    watcher.join()


@pytest.mark.long
@pytest.mark.parametrize("strategy", Strategy)
def test_one_process_takes_up_what_two_have_left_and_back(prepared: Any, strategy: Strategy) -> None:
    def spread(devices: int) -> Any:
        config = prepared("second", devices)
        config.trainer.strategy = strategy
        return config

    whole = train_stage(prepared("first", 1))
    stopped(spread(2), after=4)
    stopped(spread(1), after=12)
    resumed = train_stage(spread(2))
    assert curve(resumed) == pytest.approx(curve(whole), rel=1e-4)
    for name, tensor in heads(whole).items():
        torch.testing.assert_close(heads(resumed)[name], tensor, atol=1e-3, rtol=1e-2)


def test_what_a_process_complains_of_is_one_paragraph(prepared: Any) -> None:
    config = prepared("first", 2)
    config.optim.optimizer["lr"] = 1e30
    with pytest.raises(LabError, match=r"gradients of the last 10 steps, .* Lower optim\.optimizer\.lr"):
        train_stage(config)
