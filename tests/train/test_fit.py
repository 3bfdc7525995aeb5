"""Training whole: it learns, it resumes bit for bit, it writes what the export needs."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from types import SimpleNamespace

import pytest
import torch
import wandb
from hydra import compose, initialize_config_dir
from safetensors.torch import load_file

from eagle_lab.config import load
from eagle_lab.config.errors import LabError, Preempted
from eagle_lab.config.files import read_jsonl
from eagle_lab.config.paths import conf_dir
from eagle_lab.config.stage import stage
from eagle_lab.draft.unroll import Batch
from eagle_lab.track.tracker import NOWHERE, tracker
from eagle_lab.train import fit as fit_module
from eagle_lab.train.device import check_settings, precision
from eagle_lab.train.fit import HEAD_FILE, newest, train_head
from eagle_lab.train.metrics import StepCounts
from eagle_lab.train.module import HeadModule
from tests.track.offline import offline_runs
from tests.train.conftest import EOS, HIDDEN, VOCAB, SmallTarget, dataset_of

LOCATED = SimpleNamespace(
    name="small",
    num_hidden_layers=8,
    hidden_size=HIDDEN,
    vocab_size=VOCAB,
    eos_token_ids=[EOS],
    config={
        "hidden_size": HIDDEN, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
        "vocab_size": VOCAB, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 100.0,
    },
)  # fmt: skip


def config_of(*overrides: str):
    load.register()
    base = [
        "target=tiny",
        "trainer=small",
        "trainer.accelerator=cpu",
        "trainer.num_threads=1",
        "track=none",
        "draft.vocab_size=24",
        "loss.unroll_steps=3",
    ]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose(
            "train", [*base, "optim=adamw_small", "optim.optimizer.lr=3e-3", "loss.unroll_steps=3", *overrides]
        )
    return load.load(cfg)


@pytest.fixture(autouse=True)
def small_target(monkeypatch):
    monkeypatch.setattr(fit_module, "TargetModel", lambda *_, **__: SmallTarget())


def run(out, dataset, *overrides, track=NOWHERE):
    out.mkdir(exist_ok=True)
    return train_head(config_of(*overrides), LOCATED, dataset, out, track)


def same(a, b):
    a, b = load_file(a / HEAD_FILE), load_file(b / HEAD_FILE)
    assert a.keys() == b.keys()
    return all(torch.equal(a[k], b[k]) for k in a)


def test_it_learns_the_targets_function(tmp_path):
    data = dataset_of([(4, 20)] * 60, holdout=12)
    before = run(tmp_path / "a", data, "trainer.max_epochs=0")["metrics"]
    after = run(tmp_path / "b", data, "trainer.max_epochs=12")["metrics"]
    assert after["loss_0"] < before["loss_0"] - 0.2
    assert after["proxy_accept_length"] > before["proxy_accept_length"] + 0.1


class Killed(BaseException):
    pass


@pytest.fixture
def die_at(monkeypatch):
    """Makes the process of training end at the n-th batch from now on."""
    build = fit_module.Feed.batch

    def arm(step):
        calls = 0

        def batch(self, indices):
            nonlocal calls
            calls += 1
            if calls == step:
                raise Killed
            return build(self, indices)

        monkeypatch.setattr(fit_module.Feed, "batch", batch)

    return arm


def test_a_killed_run_taken_up_equals_one_that_was_not(tmp_path, dataset, die_at):
    settings = ("trainer.max_epochs=4", "trainer.batch_size=4", "trainer.checkpoint_every=5")
    whole = run(tmp_path / "whole", dataset, *settings)
    for step in (9, 7):  # killed in step 9 after the checkpoint of step 5, then again
        die_at(step)
        with pytest.raises(Killed):
            run(tmp_path / "killed", dataset, *settings)
        assert newest(tmp_path / "killed" / "checkpoints") is not None
    die_at(0)
    resumed = run(tmp_path / "killed", dataset, *settings)
    assert same(tmp_path / "whole", tmp_path / "killed")
    assert resumed["metrics"] == whole["metrics"]
    steps = [r["step"] for r in read_jsonl(tmp_path / "killed" / "metrics.jsonl") if "train/loss" in r]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("torn", [["step=10.ckpt"], ["step=10.ckpt", "step=5.ckpt"]])
@pytest.mark.parametrize("how", ["cut", "empty", "scribbled"])
def test_a_torn_checkpoint_costs_its_own_steps_only(tmp_path, dataset, capsys, torn, how):
    settings = ("trainer.max_epochs=4", "trainer.batch_size=4", "trainer.checkpoint_every=5")
    run(tmp_path / "whole", dataset, *settings)
    killed(tmp_path / "killed", dataset, *settings)
    checkpoints = tmp_path / "killed" / "checkpoints"
    assert {p.name for p in checkpoints.iterdir()} == {"step=5.ckpt", "step=10.ckpt"}
    for name in torn:
        raw = (checkpoints / name).read_bytes()
        # longer than what pads one tensor to the next
        scribbled = raw[: len(raw) // 2] + b"x" * 200 + raw[len(raw) // 2 + 200 :]
        (checkpoints / name).write_bytes({"cut": raw[:-100], "empty": b"", "scribbled": scribbled}[how])
    capsys.readouterr()
    run(tmp_path / "killed", dataset, *settings)
    said = capsys.readouterr().err
    for name in torn:
        assert f"{checkpoints / name}: not a whole checkpoint" in said
        assert (checkpoints / name).with_suffix(".torn").exists()
    assert ("goes on from step=5.ckpt" in said) == (len(torn) == 1)
    assert ("starts again from step 0" in said) == (len(torn) == 2)
    assert same(tmp_path / "whole", tmp_path / "killed")
    steps = [r["step"] for r in read_jsonl(tmp_path / "killed" / "metrics.jsonl") if "train/loss" in r]
    assert steps == sorted(set(steps))


def killed(out, dataset, *settings):
    """A run that dies in its twelfth step, after the checkpoints of the fifth and the tenth."""

    calls = itertools.count(1)
    build = fit_module.Feed.batch

    def batch(self, indices):
        if next(calls) == 14:
            raise Killed
        return build(self, indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module.Feed, "batch", batch)
        with pytest.raises(Killed):
            run(out, dataset, *settings)


def test_a_run_taken_up_offline_is_a_second_directory_of_the_same_id_whose_steps_go_on(
    tmp_path, dataset, die_at, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = ("trainer.max_epochs=4", "trainer.batch_size=4", "trainer.checkpoint_every=5", "trainer.log_every=1")
    config, out = config_of(*settings, "track=wandb", "track.mode=offline"), tmp_path / "out"
    die_at(9)
    with pytest.raises(Killed), tracker(config, out, "train") as track:
        run(out, dataset, *settings, track=track)
    killed_at = read_jsonl(out / "metrics.jsonl")[-1]["step"]
    time.sleep(1.1)  # W&B names directories by the second
    die_at(0)
    with tracker(config, out, "train") as track:
        run(out, dataset, *settings, track=track)
    wandb.teardown()  # else its service may still be writing
    first, second = offline_runs(out)
    assert first.id == second.id
    assert (first.exit_code, second.exit_code) == (1, 0)
    rows = read_jsonl(out / "metrics.jsonl")
    first_steps, second_steps = ([line["_step"] for line in found.history] for found in (first, second))
    assert 5 < killed_at < rows[-1]["step"]
    assert first_steps == list(range(1, killed_at + 1))
    assert second_steps == list(range(6, rows[-1]["step"] + 1)), "from the checkpoint of step 5"
    # what both have logged is the same but for the clock's, and together they are the file on disk
    logged = {line["_step"]: line for line in first.history}
    clock = {"train/tokens_s": 0, "train/data_wait": 0}
    assert all(logged.get(line["_step"], line) | clock == line | clock for line in second.history)
    logged |= {line["_step"]: line for line in second.history}
    on_disk: dict[int, dict[str, float]] = {}
    for row in rows:
        values = {k: v for k, v in row.items() if k != "step"}
        on_disk.setdefault(row["step"], {"_step": row["step"]}).update(values)
    assert logged == on_disk


def test_another_seed_gives_another_head(tmp_path, dataset):
    run(tmp_path / "a", dataset, "trainer.max_epochs=1")
    run(tmp_path / "b", dataset, "trainer.max_epochs=1")
    run(tmp_path / "c", dataset, "trainer.max_epochs=1", "seed=7")
    assert same(tmp_path / "a", tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "c")


def test_the_facts_name_what_was_done(tmp_path, dataset):
    facts = run(tmp_path / "a", dataset, "trainer.max_epochs=1", "ops=reference")
    assert facts["aux_layers"] == [2, 4, 5]
    assert facts["steps"] == 3
    assert facts["ops"]["unroll_attention"].endswith("reference")
    assert 0 < facts["coverage"]["train"] <= 1
    held = facts["metrics"]
    assert held["proxy_accept_length"] == pytest.approx(1 + sum(held[f"cumulative_{i}"] for i in range(3)))


def test_no_held_out_rows_give_no_metrics(tmp_path):
    assert run(tmp_path / "a", dataset_of([(4, 8)] * 6, holdout=0), "trainer.max_epochs=1")["metrics"] == {}


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


@pytest.fixture
def ruined(monkeypatch):
    """From step 8 on the head's predictions are random."""
    right = HeadModule.forward_steps

    def forward(self, batch):
        if self.training and self.global_step >= 8:
            torch.nn.init.normal_(self.head.lm_head.weight, std=10)
        return right(self, batch)

    monkeypatch.setattr(HeadModule, "forward_steps", forward)


def proxies(directory):
    rows = read_jsonl(directory / "metrics.jsonl")
    return {r["step"]: r["held_out/proxy_accept_length"] for r in rows if "held_out/proxy_accept_length" in r}


def test_the_best_weights_are_kept(tmp_path, ruined):
    data = dataset_of([(4, 20)] * 40, holdout=12)
    settings = ("trainer.batch_size=7", "trainer.max_epochs=5")
    last = run(tmp_path / "last", data, *settings)
    best = run(tmp_path / "best", data, *settings, "trainer.keep=best")
    seen = proxies(tmp_path / "best")
    assert len(seen) == 5
    assert last["kept_step"] == last["steps"] == best["steps"] == 20
    assert best["kept_step"] == max(seen, key=lambda step: seen[step]) <= 8
    assert best["metrics"]["proxy_accept_length"] == pytest.approx(max(seen.values()))
    assert last["metrics"]["proxy_accept_length"] < max(seen.values())


def test_training_ends_when_nothing_gets_better(tmp_path, ruined):
    data = dataset_of([(4, 20)] * 40, holdout=12)
    facts = run(tmp_path / "a", data, "trainer.batch_size=7", "trainer.max_epochs=9", "trainer.patience=2")
    seen = proxies(tmp_path / "a")
    best = max(seen, key=lambda step: seen[step])
    assert facts["steps"] == best + 2 * 4 < 36
    assert facts["trained_tokens"] < 36 * 7 * 20


def test_nothing_held_out_is_nothing_to_choose_by(tmp_path):
    with pytest.raises(LabError, match=r"trainer\.keep=best, trainer\.patience=None with data\.holdout=0"):
        config_of("trainer.keep=best", "data.holdout=0")
    with pytest.raises(LabError, match="the dataset holds nothing out"):
        run(tmp_path / "a", dataset_of([(4, 20)] * 8, holdout=0), "trainer.patience=1")


def test_speed_waiting_and_gradients_are_logged(tmp_path, dataset):
    run(tmp_path / "a", dataset, "trainer.max_epochs=2", "trainer.batch_size=4", "trainer.log_every=2")
    rows = [r for r in read_jsonl(tmp_path / "a" / "metrics.jsonl") if "train/loss" in r]
    assert rows
    for row in rows:
        assert row["train/tokens_s"] > 0
        assert 0 <= row["train/data_wait"] < 1
        assert row["train/grad_norm"] > 0


def test_training_goes_on_from_a_head_with_its_map(tmp_path, dataset):
    first = run(tmp_path / "first", dataset, "trainer.max_epochs=3")["metrics"]
    start = load_file(tmp_path / "first" / HEAD_FILE)
    other = dataset_of([(4, 20)] * 30, holdout=6, seed=1)  # whose own map would be another
    (tmp_path / "second").mkdir()
    (tmp_path / "config.json").touch()
    config = config_of("draft.init=head", f"draft.init_head={tmp_path}", "trainer.max_epochs=0")
    train_head(config, LOCATED, other, tmp_path / "second", NOWHERE, start=start)
    second = load_file(tmp_path / "second" / HEAD_FILE)
    assert all(torch.equal(second[name], start[name]) for name in start)
    (tmp_path / "third").mkdir()
    config.trainer.max_epochs = 2
    facts = train_head(config, LOCATED, dataset, tmp_path / "third", NOWHERE, start=start)
    third = load_file(tmp_path / "third" / HEAD_FILE)
    assert torch.equal(third["d2t"], start["d2t"])
    assert facts["metrics"]["loss_0"] < first["loss_0"]


def test_stored_states_train_as_those_of_the_target(tmp_path, dataset, monkeypatch):
    settings = ("trainer.max_epochs=3", "trainer.batch_size=4", "trainer.log_every=1")
    online = run(tmp_path / "online", dataset, *settings, "trainer.capture=online")
    with stage(tmp_path, "features", "small", {}) as work:
        config = config_of(*settings)
        work.finish(fit_module.capture_features(config, LOCATED, dataset, work.path))
    # the target itself is not there any more
    monkeypatch.setattr(fit_module, "TargetModel", lambda *_, **__: pytest.fail("loaded"))
    monkeypatch.setattr(fit_module, "TargetWeights", lambda *_, **__: SmallTarget())
    (tmp_path / "stored").mkdir()
    config = config_of(*settings, "trainer.capture=stored")
    stored = train_head(config, LOCATED, dataset, tmp_path / "stored", NOWHERE, (work.path, work.manifest))
    curves = [
        [r["train/loss"] for r in read_jsonl(tmp_path / name / "metrics.jsonl") if "train/loss" in r]
        for name in ("online", "stored")
    ]
    assert len(curves[0]) == online["steps"]
    assert curves[1] == pytest.approx(curves[0], rel=2**-8)
    assert curves[1] != curves[0]  # bfloat16 was read
    assert stored["metrics"]["loss_0"] == pytest.approx(online["metrics"]["loss_0"], rel=2**-6)


def test_kernels_without_a_gpu_are_refused_before_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = config_of("ops=triton", "trainer.accelerator=auto")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    check_settings(config)
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(LabError, match="ops=triton: there is no GPU here"):
        check_settings(config)


def test_more_devices_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("trainer.devices=4", "trainer.accelerator=gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(LabError, match=r"trainer\.devices=4: torch sees 2 GPU"):
        check_settings(config)
    config.trainer.accelerator = "cpu"
    check_settings(config)


def test_precision_follows_the_device() -> None:
    cpu = torch.device("cpu")
    assert precision("auto", cpu) == "32-true"
    assert precision("bf16-mixed", cpu) == "bf16-mixed"
