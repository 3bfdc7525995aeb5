"""Faults of a dataset and of the training that is to read it, before the first step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle_lab.config.schema import Config
from eagle_lab.data.dataset import Dataset
from eagle_lab.doctor.checks import room
from eagle_lab.doctor.finding import Level, Verdict
from eagle_lab.doctor.registry import FILES, diagnosis, examine
from eagle_lab.doctor.subject import Subject
from eagle_lab.draft.cost import Document
from eagle_lab.plan.training import Needs
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.train.trial import made_up
from tests.known_acceptance import known_pair
from tests.plan.test_resolve import config_of

FACTS: dict[str, Any] = {
    **{"digest": "d" * 16, "mask_ratio": 0.6, "tokens": 2_000_000, "supervised_tokens": 1_200_000, "regenerated": True},
    **{"rows": 64, "cut_at_max_length": 2, "ends_with_eos": 50, "dropped": {"prompt in a suite": 3}},
}
OF_DATA = [check for check in FILES if "dataset" in check.NEEDS]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LocatedTarget:
    return known_pair(tmp_path_factory.mktemp("data"))[0]


def looked(target: LocatedTarget, tmp_path: Path, *words: str, **facts: Any) -> dict[str, Verdict]:
    config: Config = config_of("target=tiny", "draft.vocab_size=256", f"paths.outputs={tmp_path}", *words)
    dataset = made_up([Document(40, 30)] * 64, 512, seed=0)
    dataset = Dataset(dataset.rows, dataset.train, dataset.holdout, {**FACTS, **facts})
    return {v.check: v for v in examine(Subject(config, None, target, dataset), OF_DATA)}


def test_good_data_has_no_failure(target: LocatedTarget, tmp_path: Path) -> None:
    found = looked(target, tmp_path)
    assert {v.level for v in found.values()} == {Level.ok, Level.skipped}, found
    assert found["contamination"].finding.found == "smoke was kept out: 3 prompts dropped"
    assert found["room"].finding.found.startswith("0.0 GiB on disk")


@pytest.mark.parametrize(
    ("check", "level", "facts"),
    [
        ("loss mask", Level.fail, {"mask_ratio": 0.0}),  # SpecForge#392: a template that did not match
        ("loss mask", Level.warn, {"mask_ratio": 0.99}),
        ("cut answers", Level.warn, {"cut_at_max_length": 40}),
        ("cut answers", Level.warn, {"ends_with_eos": 0}),
        ("amount of data", Level.warn, {"supervised_tokens": 20_000}),
        ("amount of data", Level.warn, {"regenerated": False}),
    ],
)
def test_what_is_wrong_with_the_data(
    target: LocatedTarget, tmp_path: Path, check: str, level: Level, facts: dict[str, Any]
) -> None:
    found = looked(target, tmp_path, **facts)
    assert found.pop(check).level is level
    assert {v.level for v in found.values()} == {Level.ok, Level.skipped}


def test_a_suite_that_was_trained_on(target: LocatedTarget, tmp_path: Path) -> None:
    found = looked(target, tmp_path, "suite=gsm8k")["contamination"]
    assert found.level is Level.warn
    assert found.finding.fix == "data.decontaminate='[smoke,gsm8k]' makes the dataset anew"


@pytest.mark.parametrize("what", ["_free", "_host_memory", "_gpu"])
def test_a_training_that_finds_no_room(
    target: LocatedTarget, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eagle_lab.config.gpus import Gpu

    monkeypatch.setattr(room, what, lambda *_: Gpu(0.1, 1.0, 1.0) if what == "_gpu" else 10)
    verdicts = looked(target, tmp_path, "trainer.capture=cached")
    assert [v.check for v in diagnosis(verdicts.values())] == ["room"]


def test_a_target_may_be_spread_over_all_gpus_of_this_machine(
    target: LocatedTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def needs(config: Config, *others: Any) -> Needs:
        asked.append(config.plan.gpus)
        return counted(config, *others)

    counted = room.needs
    monkeypatch.setattr(room, "needs", needs)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert looked(target, tmp_path)["room"].level is Level.ok
    assert asked == [4]


def test_steps_are_made_where_they_are_asked_for(target: LocatedTarget, tmp_path: Path) -> None:
    config = config_of("target=tiny", "draft.vocab_size=256", "doctor.dry_step=true", "trainer.batch_size=4")
    dataset = made_up([Document(40, 30)] * 64, 512, seed=0)
    subject = Subject(replace(config), None, target, Dataset(dataset.rows, dataset.train, dataset.holdout, FACTS))
    found = {v.check: v for v in examine(subject, OF_DATA)}["dry step"]
    assert found.level is Level.ok, found
    assert "tokens/s" in found.finding.found
