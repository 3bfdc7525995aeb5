"""Which points share a server, which baselines are added, in what order they run and how long that takes."""

from __future__ import annotations

from itertools import product

import pytest

from eagle_lab.sweep.jobs import Estimate, Job, jobs, with_baselines
from tests.sweep.conftest import Points


def labels(found: list[Job]) -> list[list[str]]:
    return [[f"{p.config.spec.kind.value}{p.config.spec.num_draft_tokens or ''}" for p in j.points] for j in found]


def test_points_that_differ_in_the_suite_only_share_a_server(points: Points) -> None:
    grid = product(("chain_2", "chain_5"), (1, 8), (32, 64))
    made = points("bench", *([f"spec={s}", f"suite.concurrency={c}", f"suite.max_new_tokens={n}"] for s, c, n in grid))
    assert labels(jobs(made)) == [["chain2"] * 4, ["chain5"] * 4]


@pytest.mark.parametrize(
    "other", ["server.context_length=512", "head=${oc.env:HEADS}/b", "spec=chain_2", "suite.timed=false"]
)
def test_what_needs_another_server_is_another_job(points: Points, other: str) -> None:
    made = points("bench", ["spec=chain_5", "suite.concurrency=2"], ["spec=chain_5", other])
    assert len(jobs(made)) == 2


def test_other_verbs_share_nothing(points: Points) -> None:
    made = points("train", ["loss.unroll_steps=1"], ["loss.unroll_steps=2"])
    assert len(jobs(made)) == 2
    assert all(job.timed for job in jobs(made))


def test_baselines_are_added_once_per_condition_and_run_first(points: Points, tmp_path) -> None:
    made = points("bench", *([f"spec={s}", f"suite.concurrency={c}"] for s in ("chain_2", "chain_5") for c in (1, 8)))
    whole = with_baselines(tmp_path, made)
    assert [p.baseline for p in whole] == [True, True, *[False] * 4]
    assert [p.config.suite.concurrency for p in whole[:2]] == [1, 8]
    assert labels(jobs(whole)) == [["none", "none"], ["chain2"] * 2, ["chain5"] * 2]
    # its content is that of a point that was asked for, so that both are one
    asked = points("bench", ["spec=none", "head=null", "suite.concurrency=1"])
    assert asked[0].digest == whole[0].digest


def test_a_baseline_that_was_asked_for_is_not_added(points: Points, tmp_path) -> None:
    made = points("bench", ["spec=chain_5"], ["spec=none"])
    assert with_baselines(tmp_path, made) == made
    assert labels(jobs(made)) == [["none"], ["chain5"]]


def test_a_server_that_runs_already_has_none(points: Points, tmp_path) -> None:
    made = points(
        "bench", ["spec=chain_5", "server=url", "server.url=http://127.0.0.1:30000", "server.context_length=512"]
    )
    assert with_baselines(tmp_path, made) == made


def test_the_longest_runs_first(points: Points) -> None:
    made = points("bench", *([f"spec=chain_{n}", f"suite.limit={limit}"] for n, limit in ((2, 4), (5, 64), (16, 16))))
    assert labels(jobs(made)) == [["chain5"], ["chain16"], ["chain2"]]


def test_the_estimate_separates_start_up_from_work(points: Points) -> None:
    estimate = Estimate()
    (job,) = jobs(points("bench", ["spec=chain_5", "suite.limit=10", "suite.max_new_tokens=100"]))
    assert job.work == 1000
    assert estimate.remaining([job]) is None
    for started, work in ((True, 1000), (False, 1000), (False, 500), (True, 200)):
        estimate.add(started, work, 20 * started + 0.03 * work)
    assert estimate.remaining([job, job]) == pytest.approx(2 * (20 + 30))
    assert estimate.remaining([]) == 0


def test_an_estimate_from_one_point_is_that_point(points: Points) -> None:
    estimate = Estimate()
    (job,) = jobs(points("bench", ["spec=chain_5"]))
    estimate.add(True, job.work, 50)
    assert estimate.remaining([job]) == pytest.approx(50)
