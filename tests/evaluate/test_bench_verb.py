"""`eagle-lab bench` and `eagle-lab report` against the fake server: config in, rows.jsonl and summary.csv out."""

import csv
import json
from types import SimpleNamespace

from eagle_lab.cli import bench, report, stages
from eagle_lab.config.schema import Config, Paths, Server, ServerKind, Spec, SpecKind, Track, TrackKind


def test_rows_of_the_verb_make_the_report(server, suite, launch, tmp_path, monkeypatch, capsys):
    target = SimpleNamespace(name="tiny", digest="t" * 16, path=launch.target, hidden_size=64)
    monkeypatch.setattr(stages, "locate_target", lambda config: target)
    head = SimpleNamespace(path=launch.head, digest="h" * 16, aux_layers=[2, 4, 5])
    monkeypatch.setattr(stages, "head_stage", lambda config: head)
    config = Config(
        name="verb",
        spec=Spec(SpecKind.chain, num_draft_tokens=5),
        server=Server(kind=ServerKind.cpu, dtype="float32", attention_backend="intel_amx"),
        suite=suite,
        track=Track(kind=TrackKind.none),
        paths=Paths(outputs=str(tmp_path / "outputs"), cache=str(tmp_path)),
    )
    out = tmp_path / "outputs/sweeps/verb/point"
    assert bench.run(config, out) == 0
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [r["spec"] for r in rows] == ["none", "chain_5"]
    assert (rows[1]["captured_width"], rows[1]["head_digest"], rows[1]["aux_layers"]) == (192, "h" * 16, [2, 4, 5])
    assert "chain_5" in capsys.readouterr().out

    assert report.run(config, tmp_path) == 0
    with (tmp_path / "outputs/sweeps/verb/summary.csv").open() as f:
        assert [r["accept_length"] for r in csv.DictReader(f)] == ["1", "2"]
