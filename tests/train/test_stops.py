"""What ends a training early: gradients that are not finite, and a cluster that wants its machine back."""

from __future__ import annotations

import itertools
import os
import re
import signal

import pytest
import torch
from safetensors.torch import load_file

from eagle_lab.config.errors import LabError, Preempted
from eagle_lab.config.files import read_jsonl
from eagle_lab.draft.unroll import Batch
from eagle_lab.train import fit as fit_module
from eagle_lab.train.checkpoints import newest
from eagle_lab.train.fit import HEAD_FILE
from eagle_lab.train.metrics import StepCounts
from eagle_lab.train.module import HeadModule
from tests.train.conftest import Killed, run, same

pytestmark = pytest.mark.usefixtures("small_target")


def spoil(monkeypatch: pytest.MonkeyPatch, steps: list[int]) -> None:
    """Makes the loss of these steps NaN."""
    right = HeadModule.forward_steps

    def forward(self: HeadModule, batch: Batch) -> tuple[torch.Tensor, StepCounts]:
        loss, counts = right(self, batch)
        return (loss * float("nan") if self.training and self.global_step in steps else loss), counts

    monkeypatch.setattr(HeadModule, "forward_steps", forward)


def test_a_step_that_is_not_finite_is_left_out_and_named(tmp_path, dataset, capsys, monkeypatch):
    settings = ("trainer.max_epochs=2", "trainer.batch_size=4", "trainer.checkpoint_every=5", "trainer.log_every=1")
    spoil(monkeypatch, [3, 6])
    facts = run(tmp_path / "a", dataset, *settings)
    assert facts["skipped_steps"] == [3, 6]
    assert all(t.isfinite().all() for t in load_file(tmp_path / "a" / HEAD_FILE).values() if t.is_floating_point())
    rows = read_jsonl(tmp_path / "a" / "metrics.jsonl")
    told = [r["skipped_rows"] for r in rows if "skipped_rows" in r]
    assert [len(rows) for rows in told] == [4, 4]
    assert f"training: step 3 skipped, its gradient is not finite; rows {told[0]}" in capsys.readouterr().err


def test_skipped_steps_outlive_a_kill(tmp_path, dataset, die_at, monkeypatch):
    settings = ("trainer.max_epochs=2", "trainer.batch_size=4", "trainer.checkpoint_every=5")
    spoil(monkeypatch, [3, 7])
    whole = run(tmp_path / "whole", dataset, *settings)
    die_at(7)
    with pytest.raises(Killed):
        run(tmp_path / "killed", dataset, *settings)
    die_at(0)
    assert run(tmp_path / "killed", dataset, *settings)["skipped_steps"] == whole["skipped_steps"] == [3, 7]
    assert same(tmp_path / "whole", tmp_path / "killed")


def test_training_gives_up_when_nothing_is_finite(tmp_path, dataset, monkeypatch):
    spoil(monkeypatch, [*range(2, 100)])
    with pytest.raises(LabError, match=r"last 10 steps, up to step 11, are not finite\. Lower optim"):
        run(tmp_path / "a", dataset, "trainer.max_epochs=4", "trainer.batch_size=4")


@pytest.mark.parametrize("when", ["a step", "the held-out pass"])
def test_sigterm_leaves_a_checkpoint_and_asks_to_be_called_again(tmp_path, dataset, monkeypatch, when):
    settings = ("trainer.max_epochs=4", "trainer.batch_size=4", "trainer.checkpoint_every=100")
    whole = run(tmp_path / "whole", dataset, *settings)
    build, calls = fit_module.Feed.batch, itertools.count(1)

    def batch(self, indices):
        held_out = set(indices) <= set(dataset.holdout.indices.tolist())
        if held_out == (when == "the held-out pass") and next(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return build(self, indices)

    with monkeypatch.context() as patch:
        patch.setattr(fit_module.Feed, "batch", batch)
        with pytest.raises(Preempted, match=r"stopped at step .* with a checkpoint") as stopped:
            run(tmp_path / "stopped", dataset, *settings)
    assert stopped.value.exit_code == 75
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    step = int(re.search(r"at step (\d+)", str(stopped.value))[1])
    assert newest(tmp_path / "stopped" / "checkpoints").endswith(f"step={step}.ckpt")
    assert (2 <= step <= 3) == (when == "a step")
    assert run(tmp_path / "stopped", dataset, *settings)["metrics"] == whole["metrics"]
    assert same(tmp_path / "whole", tmp_path / "stopped")


def test_sigterm_of_a_sweep_stops_its_point_after_the_step(tmp_path, dataset, monkeypatch):
    """The handler that turns the signal into a KeyboardInterrupt has its turn once the checkpoint is there."""

    def interrupt(*_):
        raise KeyboardInterrupt

    build, calls = fit_module.Feed.batch, itertools.count(1)

    def batch(self, indices):
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return build(self, indices)

    monkeypatch.setattr(fit_module.Feed, "batch", batch)
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "a", dataset, "trainer.max_epochs=4", "trainer.batch_size=4")
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        signal.signal(signal.SIGTERM, before)
    assert newest(tmp_path / "a" / "checkpoints").endswith(("step=2.ckpt", "step=3.ckpt"))
