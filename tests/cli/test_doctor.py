"""`eagle-lab doctor` as a user runs it, against a server that runs already: table and exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from eagle_lab.config.schema import Spec, SpecKind
from eagle_lab.doctor import registry
from eagle_lab.serve.launch import Launch
from tests.fake_sglang import fake_sglang, info_of
from tests.known_acceptance import CPU, known_pair

CHECKS = [c.NAME for c in registry.CHECKS]
SERVED = [c.NAME for c in registry.SERVED]


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Launch:
    target, head = known_pair(tmp_path_factory.mktemp("doctor"))
    return Launch(target.path, replace(CPU, context_length=1024), Spec(SpecKind.chain, num_draft_tokens=4), head)


def doctor(
    launch: Launch, head: Path | None, url: str, folder: Path, *more: str
) -> tuple[int, dict[str, list[str]], str]:
    """(exit code, check -> [verdict, found], all that was said). head: None leaves it to the server."""
    words = [
        "doctor",
        *([f"head={head}"] if head else []),
        *(f"target.path={launch.target}", "target=hf", "target.name=known"),
        *("server=url", f"server.url={url}", "server.dtype=float32", "server.context_length=1024"),
        *("spec=chain", "spec.num_draft_tokens=4", "suite.max_new_tokens=24", "suite.limit=3", "track=none"),
        *(f"paths.outputs={folder}/outputs", f"paths.cache={folder}/cache", *more),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "COLUMNS": "1000"}
    done = subprocess.run(
        [sys.executable, "-m", "eagle_lab", *words], env=environment, capture_output=True, text=True, check=False
    )
    cells = [[c.strip() for c in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    return done.returncode, {c[0]: c[1:] for c in cells}, done.stdout + done.stderr


def test_a_good_head(known, tmp_path):
    with fake_sglang(info_of(known)) as url:
        code, table, text = doctor(known, None, url, tmp_path)
    assert text.startswith(f"{known.head}\nnothing fails\n"), "the one that the server names"
    assert sorted(table) == sorted(CHECKS), text
    assert {v for v, *_ in table.values()} <= {"ok", "warn", "skipped"}, text
    assert [name for name, (v, *_) in table.items() if v == "skipped"] == [*NO_DATA, *NOT_THERE], text
    assert table["served as EAGLE-3"][1] == "EAGLE3, aux states 192 wide"
    assert table["loaded weights"][1].startswith("every parameter filled; logits within")
    assert table["random head"][1].startswith("replayed accept length 2.56; a random head's 1.00")
    assert table["training equals serving"][1].startswith("3 of 3 requests equal")
    assert code == 0


NO_DATA = ("loss mask", "cut answers", "amount of data", "contamination", "coverage", "room", "dry step")
NOT_THERE = (
    *("chat template", "aux states", "layer convention", "meaning of the draft ids", "same answers", "break-even"),
)
"""This server renders no conversation, returns one row of states, answers too little, cannot be started plainly."""


def test_a_broken_head_starts_nothing(known, tmp_path):
    head = shutil.copytree(known.head, tmp_path / "head")
    weights = load_file(head / "model.safetensors")
    del weights["fc.weight"]
    save_file(weights, head / "model.safetensors")
    code, table, text = doctor(known, head, "http://127.0.0.1:1", tmp_path)
    assert [name for name, (v, *_) in table.items() if v == "FAIL"] == ["tensors", "aux width"], text
    assert table["tensors"][1:3] == ["no fc.weight", "a value for every parameter"]
    assert "1. tensors: no fc.weight; wanted: a value for every parameter. Export it again" in text
    assert table["served as EAGLE-3"][0] == "skipped"
    assert code == 1
    ignoring = "doctor.ignore=[tensors,aux width,served as EAGLE-3]"
    code, table, text = doctor(known, head, "http://127.0.0.1:1", tmp_path, ignoring)
    assert table["served as EAGLE-3"][0] == "FAIL", "asked for in spite of the missing fc"
    assert "1. tensors (ignored: doctor.ignore): no fc.weight" in text
    assert code == 0, text
    code, _, text = doctor(known, head, "http://127.0.0.1:1", tmp_path, "doctor.ignore=[nosuch]")
    assert code == 2
    assert "no check is called nosuch" in text


def test_files_that_are_none(known, tmp_path):
    head = shutil.copytree(known.head, tmp_path / "head")
    (head / "model.safetensors").write_bytes(b"torn")
    (head / "config.json").write_text("[]")
    code, table, text = doctor(known, head, "http://127.0.0.1:1", tmp_path)
    assert table["files"][0] == "FAIL", text
    assert "a JSON object is wanted" in table["files"][1]
    assert [name for name, (v, *_) in table.items() if v == "FAIL"] == ["files"], text
    assert code == 1
    assert "Traceback" not in text


def test_a_server_that_is_not_asked_is_not_passed_over(known, tmp_path):
    tree = ("spec=tree", "spec.num_steps=3", "spec.eagle_topk=2", "spec.num_draft_tokens=6")
    code, table, text = doctor(known, known.head, "http://127.0.0.1:1", tmp_path, *tree)
    said = "how it is served was not looked at: a server is asked about a chain only, this is tree_3_2_6"
    assert f"nothing fails in its files; {said}" in text
    assert table["served as EAGLE-3"][0] == "skipped"
    assert code == 0
    none = ("spec=none", "spec.num_draft_tokens=null")
    code, table, text = doctor(known, known.head, "http://127.0.0.1:1", tmp_path, *none)
    assert "1. served as EAGLE-3: http://127.0.0.1:1/server_info does not answer" in text, "it runs, so it is asked"
    assert code == 1
    code, _, text = doctor(known, None, "http://127.0.0.1:1", tmp_path)
    assert code == 3, "nobody names the head"
    assert "Traceback" not in text


def test_a_server_that_runs_says_what_it_drafts(known, tmp_path):
    none = ("spec=none", "spec.num_draft_tokens=null")
    with fake_sglang(info_of(known)) as url:
        code, table, text = doctor(known, None, url, tmp_path, *none)
        assert table["served as EAGLE-3"][:2] == ["ok", "EAGLE3, aux states 192 wide"], text
        assert code == 0
    with fake_sglang(info_of(replace(known, spec=Spec(), head=None))) as url:
        code, table, text = doctor(known, known.head, url, tmp_path, *none)
        assert f"{url} does not speculate" in table["served as EAGLE-3"][1], text
        assert code == 1


def test_for_machines(known, tmp_path):
    code, _, text = doctor(known, known.head, "http://127.0.0.1:1", tmp_path, "--json")
    found = json.loads(next(line for line in text.splitlines() if line.startswith("[")))
    assert [row["check"] for row in found] == CHECKS
    assert all(set(row) == {"check", "verdict", "found", "wanted", "fix"} for row in found)
    assert [row["check"] for row in found if row["verdict"] == "fail"] == SERVED[:1], "nobody answers at port 1"
    assert code == 1


def test_a_head_made_elsewhere_and_a_server_that_is_another(known, tmp_path):
    head = shutil.copytree(known.head, tmp_path / "head")
    (head / "export.json").unlink()
    with fake_sglang(info_of(replace(known, spec=Spec(SpecKind.chain, num_draft_tokens=3), head=head))) as url:
        code, table, text = doctor(known, head, url, tmp_path)
    assert [name for name, (v, *_) in table.items() if v == "FAIL"] == ["served as EAGLE-3"], text
    assert "speculative_num_draft_tokens=3" in table["served as EAGLE-3"][1]
    assert {table[name][1] for name in SERVED[1:]} == {"no server answers as it was asked to"}
    assert code == 1


def test_by_vllm_no_server_is_asked_and_both_views_are_shown(known, tmp_path):
    views = ("doctor.views=true", "doctor.engine=vllm")
    code, table, text = doctor(known, known.head, "http://127.0.0.1:1", tmp_path, *views)
    assert code == 0, text
    assert {table[name][1] for name in SERVED} == {"a vLLM server is not started here"}
    assert table["aux layers"][1].endswith("the states that enter these layers, as trained")
    assert "vLLM 0.33.0" in text
    assert table["t2d"] == ["dropped", "dropped"]
    assert table["dtype"] == ["loaded: float32", "overwritten: by the target's"]
    assert "fc.weight" not in table, "both load it"
    assert table["eagle_aux_hidden_state_layer_ids"] == [
        "dropped: [2, 4, 5]",
        "loaded: [2, 4, 5], what enters these layers",
    ]
    head = shutil.copytree(known.head, tmp_path / "head")
    (head / "config.json").write_text("[]")
    code, _, text = doctor(known, head, "http://127.0.0.1:1", tmp_path, *views)
    assert code == 1
    assert "no views: " in text
    assert "Traceback" not in text
    code, _, text = doctor(known, known.head, "http://127.0.0.1:1", tmp_path, "doctor.engine=tensorrt")
    assert code == 2
    assert "Traceback" not in text
