"""The names of sweep points: the same content has the same directory, other content has another."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from eagle_lab.config import load
from eagle_lab.config.paths import conf_dir
from eagle_lab.sweep.points import Point, name_points, readable


def points_of(sweep: Path, *points: list[str]) -> list[Point]:
    load.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        composed = [(p, load.load(compose("run", p))) for p in points]
    return name_points(sweep, "run", composed)


def named(sweep: Path, *points: list[str]) -> list[str]:
    return [p.directory.name for p in points_of(sweep, *points)]


def test_the_name_says_what_differs(tmp_path: Path) -> None:
    shared = ["target=tiny", "draft.vocab_size=64", "server=cpu"]
    names = named(tmp_path, [*shared, "spec=none"], [*shared, "spec=chain_5"])
    assert [n.rsplit("-", 1)[0] for n in names] == ["spec=none", "spec=chain_5"]
    assert names[0].rsplit("-", 1)[1] != names[1].rsplit("-", 1)[1]


def test_it_is_kept_what_a_head_was_trained_with(tmp_path: Path) -> None:
    shared = ["spec=chain_5", "data.holdout=0.1"]
    grid = (["loss.unroll_steps=1", "aux=quarters"], ["loss.unroll_steps=3", "suite.limit=4"])
    made = points_of(tmp_path, *([*shared, *own] for own in grid))
    assert [p.trained_with for p in made] == ["aux=quarters loss.unroll_steps=1", "loss.unroll_steps=3"]


def test_a_narrower_second_launch_finds_the_same_directory(tmp_path: Path) -> None:
    first = named(tmp_path, ["spec=none"], ["spec=chain_5"])
    for name in first:
        (tmp_path / name).mkdir()
    assert named(tmp_path, ["spec=chain", "spec.num_draft_tokens=5"]) == [first[1]]


def test_points_of_one_content_become_one(tmp_path: Path) -> None:
    assert len(named(tmp_path, ["spec=chain_5"], ["spec=chain", "spec.num_draft_tokens=5"])) == 1


PLACES = ["name=other", "track=none", "paths.outputs=/elsewhere", "paths.cache=/c", "server.stall_timeout_s=9"]


@pytest.mark.parametrize("override", PLACES)
def test_names_and_places_are_no_content(tmp_path: Path, override: str) -> None:
    assert named(tmp_path, [override])[0].rsplit("-", 1)[1] == named(tmp_path, [])[0].rsplit("-", 1)[1]


@pytest.mark.usefixtures("heads")
@pytest.mark.parametrize("override", ["seed=2", "spec=chain_5", "head=${oc.env:HEADS}/a"])
def test_content_changes_the_digest(tmp_path: Path, override: str) -> None:
    assert named(tmp_path, [override])[0].rsplit("-", 1)[1] != named(tmp_path, [])[0].rsplit("-", 1)[1]


def test_readable_is_safe_and_short() -> None:
    text = readable(["spec=chain_5", "optim.optimizer.lr=1e-3", "aux=explicit", "aux.layers=[2,15,27]"])
    assert text == "aux=explicit_layers=_2_15_27_lr=1e-3_spec=chain_5"
    assert readable([]) == "point"
    assert readable(["name=mine", "dry_run=true", "paths.outputs=/o", "+jobs=2", "seed=1"]) == "seed=1"
    assert len(readable([f"head=/{'x' * 500}"])) <= 60
