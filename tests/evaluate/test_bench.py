"""A spec point beside its baseline, against a fake server."""

import json
from dataclasses import replace

import pytest

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.schema import Server, ServerKind, Spec, SpecKind
from eagle_lab.evaluate import measure as measure_module
from eagle_lab.evaluate.bench import PROOF_PROMPTS, bench_point
from eagle_lab.evaluate.heads import aux_width
from eagle_lab.evaluate.measure import Subject
from eagle_lab.evaluate.suites import load_suite

SUBJECT = Subject("tiny", "t" * 16, "/head", "h" * 16, [2, 4, 5])


def test_baseline_proof_point(server, suite, launch, tmp_path):
    base, row = bench_point(launch, SUBJECT, load_suite(suite), tmp_path, 192)
    assert [x.spec.kind for x in server.launches] == [SpecKind.none, SpecKind.chain]
    assert [x.hidden_states for x in server.launches] == [False, True], "the proof and the measurement share one"
    (proved,) = [c for c in server.calls if c[0] == "probe"]
    assert proved[1:3] == (True, 192)
    assert len(proved[3]) == PROOF_PROMPTS, "prompts of the suite"
    assert (base["speedup"], base["baseline_tok_s"], base["baseline_fingerprint"]) == (
        1.0,
        base["tok_s"],
        base["fingerprint"],
    )
    assert row["baseline_tok_s"] == base["tok_s"]
    assert row["speedup"] == row["tok_s"] / base["tok_s"]
    assert row["speedup_per_user"] == 2, "every request takes half as long"
    # the fake clock starts a request per second: the slot of the faster server is idle for the rest of it
    assert row["speedup"] == pytest.approx(row["speedup_low"]) == pytest.approx(row["speedup_high"])
    assert row["break_even_accept_length"] == row["accept_length"] / row["speedup"]
    assert (row["differing_prompts"], row["divergences"]) == (0, [])
    proof = json.loads(next(tmp_path.glob("probes/*/proof.json")).read_text())
    assert (row["probe"], row["captured_width"]) == (proof["digest"], 192)


def test_a_second_point_shares_the_baseline_and_a_second_run_starts_nothing(server, suite, launch, tmp_path):
    prompts = load_suite(suite)
    first = bench_point(launch, SUBJECT, prompts, tmp_path, 192)
    tree = replace(launch, spec=Spec(SpecKind.tree, 3, 4, 12))
    second = bench_point(tree, SUBJECT, prompts, tmp_path, 192)
    assert first[0] == second[0]
    assert len(server.launches) == 3
    assert bench_point(launch, SUBJECT, prompts, tmp_path, 192) == first
    assert len(server.launches) == 3
    assert sum(c[0] == "probe" for c in server.calls) == 2, "each spec is proved once"


def test_spec_none_is_the_baseline_alone(server, suite, launch, tmp_path):
    (row,) = bench_point(replace(launch, spec=Spec(), head=None), SUBJECT, load_suite(suite), tmp_path, 0)
    assert (row["spec"], row["speedup"]) == ("none", 1.0)
    assert not any(c[0] == "probe" for c in server.calls)


def test_a_changed_token_fails_the_point_on_a_cpu(server, suite, launch, tmp_path):
    server.answer[SpecKind.none], server.answer[SpecKind.chain] = 7, 8
    for _ in range(2):
        with pytest.raises(ServingFault) as e:
            bench_point(launch, SUBJECT, load_suite(suite), tmp_path, 192)
        assert "changes greedy answers (3 of 3 prompts)" in str(e.value)
        assert "prompt one, turn 1, token 0: plain decoding gives 7, this server 8" in str(e.value)


@pytest.mark.parametrize(
    "server_",
    [Server(kind=ServerKind.gpu), Server(kind=ServerKind.cpu, dtype="bfloat16", attention_backend="intel_amx")],
)
def test_elsewhere_it_is_counted(server, suite, launch, tmp_path, server_):
    server.answer[SpecKind.none], server.answer[SpecKind.chain] = 7, 8
    row = bench_point(replace(launch, server=server_), SUBJECT, load_suite(suite), tmp_path, 192)[1]
    assert row["differing_prompts"] == 3
    assert row["divergences"][0] == {"prompt": "one", "turn": 0, "position": 0, "expected": 7, "found": 8}


def test_sampled_answers_are_not_compared(server, suite, launch, tmp_path):
    server.answer[SpecKind.none], server.answer[SpecKind.chain] = 7, 8
    row = bench_point(launch, SUBJECT, load_suite(replace(suite, temperature=1.0)), tmp_path, 192)[1]
    assert (row["differing_prompts"], row["divergences"]) == (None, None)


def test_a_server_that_runs_already_has_no_baseline(server, suite, launch, tmp_path, monkeypatch):
    monkeypatch.setattr(measure_module, "sglang_version", lambda s: "there")
    there = replace(launch, server=Server(kind=ServerKind.url, url="http://127.0.0.1:1"))
    (row,) = bench_point(there, SUBJECT, load_suite(suite), tmp_path, 192)
    assert "baseline_tok_s" not in row
    assert (row["captured_width"], row["accept_length"]) == (192, 2.0)


def test_speculation_without_a_head(server, suite, launch, tmp_path):
    with pytest.raises(LabError, match="spec chain_5 needs a head"):
        bench_point(replace(launch, head=None), SUBJECT, load_suite(suite), tmp_path, 192)


def test_aux_width(launch):
    assert aux_width(launch.head, 64) == 192
    config = json.loads((launch.head / "config.json").read_text())
    two = config | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]}}
    (launch.head / "config.json").write_text(json.dumps(two))
    assert aux_width(launch.head, 64) == 128
    (launch.head / "config.json").write_text(json.dumps(config | {"eagle_config": None}))
    assert aux_width(launch.head, 64) == 192
