"""`run` from nothing: killed in every stage, taken up, finished; then what it left is read and checked.

One chain for the whole module, since each server start takes 14 s.
"""

from __future__ import annotations

import csv
import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from eagle_lab.cli.stages import ExportedHead, given_head, locate_target
from eagle_lab.config import load
from eagle_lab.config.files import read_jsonl
from eagle_lab.config.schema import Config
from eagle_lab.disk.inventory import outputs
from eagle_lab.doctor.checks import replayed as check
from eagle_lab.doctor.finding import Level
from eagle_lab.doctor.replay import Replayed, load_head
from eagle_lab.doctor.truth import replayed, target_model
from eagle_lab.report.diagnosis import alarm
from tests.e2e.conftest import Lab
from tests.promised import PROMISED_COLUMNS
from tests.track.offline import offline_runs
from tests.track.rows import assert_equals_the_point

# eight launches before the first test: 9 minutes beside another worker
pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]
RUN = ("run", "experiment=demo_tiny", "track=wandb", "track.mode=offline")


def manifests(lab: Lab) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in lab.outputs.rglob("manifest.json")}


def filled(lab: Lab, pattern: str) -> bool:
    return any(p.stat().st_size > 0 for p in lab.outputs.glob(pattern))


@pytest.fixture(scope="module")
def finished(lab: Lab) -> Lab:
    """The chain, killed -9 once in each stage; no stage that was done is done again."""
    stages = {
        "baseline": lambda: filled(lab, "measurements/none-*/server.log"),
        "prompts": lambda: filled(lab, "prompts/*/attempts.jsonl"),
        "answers": lambda: filled(lab, "answers/*/answers.jsonl"),
        "train": lambda: filled(lab, "heads/*/checkpoints/*.ckpt"),
        "export": lambda: any(lab.outputs.glob("heads/*/export/*/model.safetensors")),
        "probe": lambda: filled(lab, "probes/*/server.log"),
        "measure": lambda: filled(lab, "measurements/chain_5-*/server.log"),
    }
    before: dict[Path, int] = {}
    for there in stages.values():
        lab.kill_once(there, *RUN)
        after = manifests(lab)
        assert {p: after[p] for p in before} == before
        before = after
    code, text = lab.run(*RUN)
    assert code == 0, text
    after = manifests(lab)
    assert {p: after[p] for p in before} == before
    return lab


def point(lab: Lab, pattern: str) -> Path:
    (found,) = lab.outputs.glob(pattern)
    return found


def test_the_table_has_one_row_per_spec_point(finished: Lab) -> None:
    with (finished.outputs / "sweeps/demo_tiny/summary.csv").open() as f:
        reader = csv.DictReader(f)
        rows = {r["spec"]: r for r in reader}
        assert list(reader.fieldnames or [])[: len(PROMISED_COLUMNS)] == PROMISED_COLUMNS
    assert set(rows) == {"none", "chain_5"}
    assert rows["chain_5"]["captured_width"] == "192"
    assert rows["chain_5"]["speculative_algorithm"] == "EAGLE3"
    assert (rows["chain_5"]["num_steps"], rows["chain_5"]["eagle_topk"]) == ("4", "1")
    low, value, high = (float(rows["chain_5"][f"accept_length{k}"]) for k in ("_low", "", "_high"))
    assert 1 < low <= value <= high
    assert float(rows["none"]["accept_length"]) == 1
    assert rows["chain_5"]["baseline_tok_s"] == rows["none"]["tok_s"]


def test_the_runs_that_wandb_recorded_equal_the_points(finished: Lab) -> None:
    for spec in ("none", "chain_5"):
        directory = point(finished, f"sweeps/demo_tiny/spec={spec}-*")
        *killed, last = offline_runs(directory)
        assert_equals_the_point(last, directory, "demo_tiny", "run")
        assert all(run.exit_code != 0 and run.directory.name.endswith(last.id) for run in killed)
    rows = read_jsonl(directory / "rows.jsonl")
    head = json.loads(point(finished, "heads/*/manifest.json").read_text())
    assert last.config["lineage"] == {
        "target": rows[1]["target_digest"],
        "dataset": head["key"]["dataset"][0],
        "training": head["digest"],
        "head": rows[1]["head_digest"],
        "evaluation": {row["spec"]: row["fingerprint"] for row in rows},
    }
    assert last.summary["held_out/replayed_accept_length"] == head["metrics"]["replayed_accept_length"]
    # what W&B had written by the time of a kill
    on_disk = [row["step"] for row in read_jsonl(point(finished, "heads/*/metrics.jsonl")) if "train/loss" in row]
    logged = {line["_step"] for run in killed for line in run.history if "train/loss" in line}
    assert logged <= set(on_disk)


def test_the_head_is_recorded_with_all_that_it_was_made_from(finished: Lab, tmp_path: Path) -> None:
    """Exported once more, in a copy: the launch that exported it was killed before W&B had written anything."""
    outputs = tmp_path / "outputs"
    shutil.copytree(finished.outputs, outputs)
    shutil.rmtree(next(outputs.glob("heads/*/export")))
    code, text = finished.run("export", *RUN[1:], "hydra.mode=RUN", f"paths.outputs={outputs}")
    assert code == 0, text
    (run,) = offline_runs(outputs / "runs/export")
    assert (run.job_type, run.exit_code) == ("export", 0)
    (head,) = outputs.glob("heads/*/export/*")
    facts = json.loads((head / "export.json").read_text())
    (made,) = run.artifacts
    assert (made["type"], made["name"]) == ("model", "eagle3-tiny")
    assert made["aliases"] == sorted([given_head(head).digest, "latest"])
    assert made["metadata"] == {
        **{k: facts[k] for k in ("target_digest", "dataset_digest", "train_digest", "aux_layers", "git_sha")},
        "sglang_aux_layers": [k - 1 for k in facts["aux_layers"]],
        "export_digest": given_head(head).digest,
    }
    assert made["files"] == {n: str(head / n) for n in ("config.json", "model.safetensors", "export.json")}
    assert run.config["lineage"]["training"] == facts["train_digest"]


def test_no_file_is_left_half_written(finished: Lab) -> None:
    assert not list(finished.outputs.rglob("*.tmp"))
    for file in finished.outputs.rglob("*.json"):
        json.loads(file.read_text())
    for file in finished.outputs.rglob("*.jsonl"):
        assert read_jsonl(file)


def test_a_run_leaves_nothing_that_gc_does_not_know(finished: Lab) -> None:
    assert outputs(finished.outputs).foreign == []


def test_a_second_launch_starts_nothing(finished: Lab) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.outputs.rglob("server.log")}
    code, text = finished.run(*RUN)
    assert code == 0
    assert text.count("done already") == 2
    assert {p: p.stat().st_mtime_ns for p in finished.outputs.rglob("server.log")} == before


def replay_of(config: Config, head: ExportedHead, requests: list[dict[str, Any]]) -> list[Replayed]:
    model = target_model(config, locate_target(config), head.aux_layers)
    steps = config.spec.num_steps
    assert steps is not None
    return replayed(load_head(head.path, model.embed_weight), model, requests, steps)


def test_training_equals_serving(finished: Lab) -> None:
    """Our head, replayed over the tokens that the server returned, predicts every request's histogram."""
    measured = point(finished, "measurements/chain_5-*")
    requests = read_jsonl(measured / "requests.jsonl")
    assert len(requests) >= 20
    accepted = sum(k * n for r in requests for k, n in enumerate(r["histogram"]))
    assert accepted >= 10, "a head that accepts next to nothing proves nothing"
    config = load.load_file(point(finished, "sweeps/demo_tiny/spec=chain_5-*") / "config.yaml")
    config.paths.cache = finished.environment["EAGLE_LAB_CACHE"]
    head = given_head(point(finished, "heads/*/export/*"))
    assert all(r.equal for r in replay_of(config, head, requests))


def test_the_row_says_what_the_head_promised(finished: Lab) -> None:
    rows = read_jsonl(point(finished, "sweeps/demo_tiny/spec=chain_5-*") / "rows.jsonl")
    row = rows[1]
    assert (row["spec"], row["replayed_requests"], row["replayed_equal"]) == ("chain_5", 16, 16)
    assert row["replayed_accept_length"] == row["replayed_served_accept_length"] > 1
    assert row["replayed_difference"] == 0
    assert len(row["proxy_survival"]) == 3, "the steps that training unrolled"
    assert row["proxy_accept_length"] == 1 + sum(row["proxy_survival"])
    assert 0 < row["coverage"] <= 1
    assert not alarm(row)
    text = (finished.outputs / "sweeps/demo_tiny/report.md").read_text()
    assert "### Promised and served" in text


def test_the_replay_sees_a_head_that_is_not_the_served_one(finished: Lab, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    head = given_head(point(finished, "heads/*/export/*"))
    for file in head.path.iterdir():
        # without the manifest it is a head of its own, not an export that was edited
        if file.is_file() and file.name != "manifest.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["fc.weight"] = torch.roll(tensors["fc.weight"], 64, 1)  # the aux states in another order
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = load.load_file(point(finished, "sweeps/demo_tiny/spec=chain_5-*") / "config.yaml")
    config.paths.cache = finished.environment["EAGLE_LAB_CACHE"]
    requests = read_jsonl(point(finished, "measurements/chain_5-*") / "requests.jsonl")
    found = replay_of(config, given_head(tmp_path), requests)
    assert not all(r.equal for r in found)
    subject: Any = SimpleNamespace(config=config, truth=SimpleNamespace(replayed=found))
    verdict = check.look(subject)
    assert verdict.level is Level.fail
    assert "serving is at fault" in verdict.fix
    assert "at the first draft" in verdict.found


def test_doctor_looks_at_what_a_config_has_made_and_makes_nothing(finished: Lab) -> None:
    before = manifests(finished)
    code, text = finished.run("doctor", "experiment=demo_tiny", "spec=none", "--json")
    assert code == 0, text
    rows = json.loads(next(line for line in text.splitlines() if line.startswith("[")))
    found = {row["check"]: row["verdict"] for row in rows}
    assert (found["files"], found["aux layers"], found["amount of data"]) == ("ok", "ok", "warn"), rows
    code, text = finished.run("doctor", "experiment=demo_tiny", "spec=none", "seed=77")
    assert code == 0, text
    assert "no head is given, and the one that this config trains is not made yet" in text
    assert manifests(finished) == before


def test_greedy_text_is_the_same_with_and_without_speculation(finished: Lab) -> None:
    plain, drafted = (
        read_jsonl(point(finished, f"measurements/{s}-*") / "requests.jsonl") for s in ("none", "chain_5")
    )
    assert len(plain) >= 20
    assert [r["token_ids"] for r in plain] == [r["token_ids"] for r in drafted]


def test_ctrl_c_stops_the_server_and_says_how_to_go_on(finished: Lab) -> None:
    import os
    import signal

    child = finished.start(*RUN, "hydra.mode=RUN", "spec=chain", "spec.num_draft_tokens=3", "name=stopped")
    while not filled(finished, "probes/chain_3-*/server.log"):
        assert child.poll() is None
        time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)
    text, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "takes up the work" in text
