"""Training whole: it learns, it resumes bit for bit, it writes what the export needs."""

from __future__ import annotations

import gc
import itertools
import time
import weakref

import pytest
import torch
import wandb
from safetensors.torch import load_file

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_jsonl
from eagle_lab.config.stage import stage
from eagle_lab.track.tracker import NOWHERE, tracker
from eagle_lab.train import fit as fit_module
from eagle_lab.train.checkpoints import newest
from eagle_lab.train.device import check_settings, precision
from eagle_lab.train.feed import supervised
from eagle_lab.train.fit import HEAD_FILE, train_head
from eagle_lab.train.module import HeadModule
from tests.track.offline import offline_runs
from tests.train.conftest import HIDDEN, LOCATED, Killed, SmallTarget, config_of, dataset_of, run, same

pytestmark = pytest.mark.usefixtures("small_target")


def test_it_learns_the_targets_function(tmp_path):
    data = dataset_of([(4, 20)] * 60, holdout=12)
    before = run(tmp_path / "a", data, "trainer.max_epochs=0")["metrics"]
    after = run(tmp_path / "b", data, "trainer.max_epochs=12")["metrics"]
    assert after["loss_0"] < before["loss_0"] - 0.2
    assert after["proxy_accept_length"] > before["proxy_accept_length"] + 0.1


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
    clock = {"train/tokens_s": 0, "train/data_wait": 0, "train/tflop_s": 0}
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


def test_so_many_tokens_are_trained_on(tmp_path, dataset):
    facts = run(tmp_path / "a", dataset, "trainer.max_epochs=1", "trainer.max_tokens=100")
    part = dataset.cut(100).train
    assert facts["trained_tokens"] == sum(len(supervised(row)) for row in part)
    assert len(part) < len(dataset.train)


def test_speed_waiting_and_gradients_are_logged(tmp_path, dataset):
    run(tmp_path / "a", dataset, "trainer.max_epochs=2", "trainer.batch_size=4", "trainer.log_every=2")
    rows = [r for r in read_jsonl(tmp_path / "a" / "metrics.jsonl") if "train/loss" in r]
    assert rows
    for row in rows:
        assert row["train/tokens_s"] > 0
        assert 0 < row["train/data_wait"] < 1
        assert row["train/grad_norm"] > 0
        assert row["train/tflop_s"] > 0
        assert "train/mfu" not in row  # of a CPU no peak is known


def test_the_size_of_each_aux_state_is_logged(tmp_path, dataset):
    run(tmp_path / "a", dataset, "trainer.max_steps=2", "trainer.batch_size=18", "trainer.log_every=1")
    row = read_jsonl(tmp_path / "a" / "metrics.jsonl")[0]
    target = SmallTarget()
    rows = [torch.from_numpy(r.input_ids.astype("int64")) for r in dataset.train]
    aux = torch.cat([target.capture(ids[None]).aux[0] for ids in rows]).view(-1, 3, HIDDEN)
    wanted = aux.square().mean((0, 2)).sqrt()
    assert [row[f"train/aux_rms_{k}"] for k in range(3)] == pytest.approx(wanted.tolist(), rel=1e-5)


def test_noise_is_drawn_anew_in_every_step_and_again_after_a_kill(tmp_path, dataset, die_at):
    settings = ("trainer.max_epochs=2", "trainer.batch_size=4", "trainer.checkpoint_every=3", "trainer.noise=0.2")
    run(tmp_path / "quiet", dataset, *settings[:-1])
    run(tmp_path / "noisy", dataset, *settings)
    assert not same(tmp_path / "quiet", tmp_path / "noisy")
    die_at(5)
    with pytest.raises(Killed):
        run(tmp_path / "killed", dataset, *settings)
    die_at(0)
    run(tmp_path / "killed", dataset, *settings)
    assert same(tmp_path / "noisy", tmp_path / "killed")


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


def test_the_target_of_a_capture_does_not_stay(tmp_path, monkeypatch):
    """A fused one is in a cycle, which only a collection frees: 15 GiB of an 8B target's during the whole training."""
    seen = []

    def cyclic(*_):
        target = SmallTarget()
        target.itself = target
        seen.append(weakref.ref(target))
        return target

    monkeypatch.setattr(fit_module, "frozen_target", cyclic)
    gc.disable()
    try:
        fit_module.capture_features(config_of(), LOCATED, dataset_of([(8, 6)] * 4, holdout=1), tmp_path)
        assert seen[0]() is None
    finally:
        gc.enable()


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
