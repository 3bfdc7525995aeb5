"""`eagle-lab bench`, `run` and `report` against the fake server: config in, rows.jsonl and summary.csv out."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from eagle_lab.cli import bench, doctor, report, run, stages
from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config, Paths, Server, ServerKind, Spec, SpecKind, Track, TrackKind
from eagle_lab.config.stage import Stage

STOP_AT_FAILURES = doctor.stop_at_failures


@pytest.fixture
def config(server, suite, launch, tmp_path, monkeypatch) -> Config:
    target = SimpleNamespace(name="tiny", digest="t" * 16, path=launch.target, hidden_size=64)
    monkeypatch.setattr(stages, "locate_target", lambda config: target)
    head = SimpleNamespace(path=launch.head, digest="h" * 16, aux_layers=[2, 4, 5], facts={})
    monkeypatch.setattr(stages, "head_stage", lambda config, track: head)
    # the fake head has neither weights nor a whole config.json
    monkeypatch.setattr(doctor, "stop_at_failures", lambda *_: None)
    metrics = {"accuracy_0": 0.5, "cumulative_0": 0.5, "acceptance_0": 0.5, "loss_0": 1.0}
    metrics |= {"proxy_accept_length": 1.5, "replayed_accept_length": 1.5}
    trained = Stage(launch.head, {}, {"metrics": metrics}, reused=True)
    monkeypatch.setattr(run, "train_stage", lambda config, track: trained)
    return Config(
        name="verb",
        spec=Spec(SpecKind.chain, num_draft_tokens=5),
        server=Server(kind=ServerKind.cpu, dtype="float32", attention_backend="intel_amx"),
        # the fake head has no weights to replay
        suite=replace(suite, replay=0),
        track=Track(kind=TrackKind.none),
        paths=Paths(outputs=str(tmp_path / "outputs"), cache=str(tmp_path)),
    )


def test_rows_of_the_verb_make_the_report(config, tmp_path, capsys):
    out = tmp_path / "outputs/sweeps/verb/point"
    assert bench.run(config, out) == 0
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [r["spec"] for r in rows] == ["none", "chain_5"]
    assert (rows[1]["captured_width"], rows[1]["head_digest"], rows[1]["aux_layers"]) == (192, "h" * 16, [2, 4, 5])
    assert capsys.readouterr().out.count("speed-up") == 1

    assert report.run(config, tmp_path) == 0
    with (tmp_path / "outputs/sweeps/verb/summary.csv").open() as f:
        assert [r["accept_length"] for r in csv.DictReader(f)] == ["1", "2"]


def test_a_head_that_fails_a_check_is_not_served(config, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "stop_at_failures", STOP_AT_FAILURES)
    with pytest.raises(LabError, match=r"files: .* `eagle-lab doctor` shows all; to go on .* doctor\.ignore=") as found:
        bench.run(config, tmp_path / "out")
    assert not (tmp_path / "out/rows.jsonl").exists()
    failing = str(found.value).partition("doctor.ignore='[")[2].partition("]'")[0].split(",")
    ignoring = replace(config, doctor=replace(config.doctor, ignore=failing))
    assert bench.run(ignoring, tmp_path / "out") == 0
    rows = [json.loads(line) for line in (tmp_path / "out/rows.jsonl").read_text().splitlines()]
    assert [row["ignored_checks"] for row in rows] == [", ".join(failing)] * 2


def test_a_run_prints_its_table_once(config, tmp_path, capsys):
    assert run.run(config, tmp_path / "out") == 0
    text = capsys.readouterr().out
    assert text.count("speed-up") == 1
    assert "held-out positions" in text
    assert (tmp_path / "out/report.md").exists()


@pytest.mark.parametrize("verb", [run, bench])
def test_a_point_of_a_sweep_is_told_in_a_line(config, tmp_path, capsys, verb):
    (tmp_path / "point").mkdir()
    (tmp_path / "point/status.json").write_text("{}")
    assert verb.run(config, tmp_path / "point") == 0
    *before, last = capsys.readouterr().out.splitlines()
    assert last.startswith("chain_5: accept length 2.00 (")
    assert not any("chain_5" in line or "held-out" in line for line in before)
    assert not (tmp_path / "point/report.md").exists()


def test_a_bad_suite_is_found_before_the_training(config, suite_file, tmp_path, monkeypatch):
    suite_file.write_text("not json\n")
    monkeypatch.setattr(run, "train_stage", lambda config: pytest.fail("trained"))
    with pytest.raises(LabError, match="line 1: not JSON"):
        run.run(config, tmp_path / "out")
