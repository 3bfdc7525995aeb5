"""A sweep's directory holds one plan: other points or other code are refused, or planned anew on request."""

from __future__ import annotations

import json

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.load import load_file
from eagle_lab.sweep import plan as plan_module
from eagle_lab.sweep.plan import check_plan, plan
from eagle_lab.sweep.status import set_status, status
from tests.sweep.conftest import Points


def test_the_same_plan_is_taken_up(points: Points, tmp_path) -> None:
    made = points("bench", ["spec=chain_5"], ["spec=chain_2"])
    assert plan(tmp_path, made) == made
    assert load_file(made[0].directory / "config.yaml") == made[0].config
    set_status(made[0].directory, "done")
    assert plan(tmp_path, made) == made[1:]
    assert plan(tmp_path, made[::-1]) == made[1:]


def test_other_points_are_refused_by_name_and_nothing_is_changed(points: Points, tmp_path) -> None:
    made = points("bench", ["spec=chain_5"], ["spec=chain_2"])
    plan(tmp_path, made)
    before = (tmp_path / "plan.json").read_text()
    other = points("bench", ["spec=chain_5"], ["spec=chain_16"])
    with pytest.raises(LabError, match=r"planned with other points\..*spec=chain_2.*spec=chain_16.*replan=true") as e:
        check_plan(tmp_path, other, replan=False)
    assert "code" not in str(e.value).split("Its results")[0]
    assert (tmp_path / "plan.json").read_text() == before
    assert not other[1].directory.exists()


def test_replan_keeps_what_is_done(points: Points, tmp_path) -> None:
    made = points("bench", ["spec=chain_5"], ["spec=chain_2"])
    plan(tmp_path, made)
    for point in made:
        set_status(point.directory, "done")
    other = points("bench", ["spec=chain_5"], ["spec=chain_16"])
    assert plan(tmp_path, other) == other[1:]
    names = [p["point"] for p in json.loads((tmp_path / "plan.json").read_text())["points"]]
    assert names == [p.directory.name for p in other]
    assert status(made[1].directory)["state"] == "done"


def test_other_code_is_refused(points: Points, tmp_path, monkeypatch) -> None:
    made = points("bench", ["spec=chain_5"])
    plan(tmp_path, made)
    monkeypatch.setattr(plan_module, "code_digest", lambda: "0" * 16)
    with pytest.raises(LabError, match="planned with other code"):
        check_plan(tmp_path, made, replan=False)
    assert plan(tmp_path, made) == made


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_plan_that_is_none(points: Points, tmp_path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(LabError, match=r"plan\.json"):
        check_plan(tmp_path, points("bench", ["spec=chain_5"]), replan=False)


def test_a_sweep_of_another_verb_is_refused_also_when_planned_anew(points: Points, tmp_path) -> None:
    plan(tmp_path, points("bench", ["spec=chain_5"]))
    with pytest.raises(LabError, match=r"holds a sweep of bench, this is one of serve: give it a name="):
        check_plan(tmp_path, points("serve", ["spec=chain_5"]), replan=True)
