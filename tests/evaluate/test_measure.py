"""A measurement against a fake server: what it asks, what its row says, when it is taken from disk."""

import json
from dataclasses import replace

import pytest

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.schema import Server, ServerKind, Spec, SpecKind
from eagle_lab.disk.inventory import FILES
from eagle_lab.evaluate import measure as measure_module
from eagle_lab.evaluate.measure import Subject, identity, label, measure
from eagle_lab.evaluate.suites import load_suite
from tests.promised import PROMISED_COLUMNS

SUBJECT = Subject("tiny", "t" * 16, "/head", "h" * 16, [2, 4, 5])
PROOF = {"captured_width": 192, "digest": "p" * 16}
COLUMNS = {
    *PROMISED_COLUMNS,
    *("accept_length_per_request", "survival", "conditional", "histogram", "tok_s_per_user"),
    *("categories", "by_position", "drift", "drift_low", "drift_high", "seed", "quantization", "tp"),
    *("ttft_p50", "ttft_p95", "itl_p50", "itl_p95", "itl_p99"),
    *("requests", "completion_tokens", "target", "target_digest", "head_digest"),
    *("head", "suite", "suite_digest", "max_new_tokens", "temperature"),
    *("concurrency", "server_kind", "sglang_version", "fingerprint", "probe"),
    *("provenance", "hardware"),
} - {"baseline_tok_s", "speedup"}
"""Those two are known once there is a baseline."""


def test_labels():
    assert label(Spec()) == "none"
    assert label(Spec(SpecKind.chain, num_draft_tokens=5)) == "chain_5"
    assert label(Spec(SpecKind.tree, 3, 4, 12)) == "tree_3_4_12"


def test_a_row_and_what_is_kept_beside_it(server, suite, launch, tmp_path):
    found = measure(launch, SUBJECT, load_suite(suite), tmp_path, PROOF)
    row = found.row
    assert set(row) >= COLUMNS
    assert json.loads(json.dumps(row)) == row
    # 13 tokens: one from prefill, then 6 rounds of one draft and the bonus
    assert (row["accept_length"], row["accept_length_low"], row["accept_length_high"]) == (2.0, 2.0, 2.0)
    assert (row["accept_length_per_request"], row["histogram"], row["survival"]) == (2.0, [0, 24], [1.0])
    assert (row["requests"], row["completion_tokens"]) == (4, 52)
    assert (row["spec"], row["num_steps"], row["speculative_algorithm"]) == ("chain_5", 4, "EAGLE3")
    assert (row["captured_width"], row["probe"], row["aux_layers"]) == (192, "p" * 16, [2, 4, 5])
    assert row["tok_s_per_user"] == 52 / 2.0
    assert row["sglang_version"] == "0.0.fake"
    assert row["suite_source"] == suite.path
    assert row["categories"] == {"math": {"accept_length": 2.0, "low": None, "high": None, "requests": 1}}
    stretch = {"from": 1, "to": 13, "accept_length": 2.0, "low": 2.0, "high": 2.0, "requests": 4}
    assert (row["by_position"], row["drift"]) == ([stretch], 0.0)
    # correct drafts, verify steps, tokens and seconds in the steady part of the two turns that were asked
    assert row["prompts"]["two"] == [12, 12, 26, 1.0]
    place = tmp_path / "measurements" / row["measurement"]
    left = {"rows.jsonl", "requests.jsonl", "lone_prompts.json", "server.log", "server_info.json"}
    assert {p.name for p in place.iterdir()} - {"manifest.json", ".lock"} == left
    assert left <= FILES["measurements"], "gc knows them"
    assert json.loads((place / "rows.jsonl").read_text()) == row
    assert len(found.requests) == 4
    assert row["fingerprint"] == json.loads((place / "manifest.json").read_text())["digest"]


def test_warm_up_and_proof_come_before_the_flush_and_the_suite(server, suite, launch, tmp_path):
    row = measure(launch, SUBJECT, load_suite(replace(suite, concurrency=3)), tmp_path, PROOF).row
    # 3 prompts of 0.1 s: 4 times make a second
    lone = ["flush", "generate"] * 4
    assert [c[0] for c in server.calls] == [
        *("generate", "counters", *lone),
        *("flush", "generate", "generate", *lone, "trace"),
    ]
    for call in (server.calls[3], server.calls[-2]):
        assert call[2:4] == (1, 1), "lone prompts are not decoded"
    kept = json.loads((tmp_path / "measurements" / row["measurement"] / "lone_prompts.json").read_text())
    assert kept == {"before": [0.1] * len(kept["before"]), "after": [0.1] * len(kept["after"])}
    assert len(kept["before"]) == len(kept["after"]) == 4 * len(server.calls[3][1])
    assert row["prompt_s"] == 0.1
    assert len(server.calls[0][1]) == 3
    assert server.calls[1] == ("counters", PROOF)


def test_the_second_pass_can_be_left_out(server, suite, launch, tmp_path):
    row = measure(launch, SUBJECT, load_suite(replace(suite, trace=False)), tmp_path).row
    assert "trace" not in [c[0] for c in server.calls]
    assert (row["by_position"], row["drift"], row["accept_length"]) == ([], None, 2.0)


def test_an_untimed_point_is_asked_once_step_by_step_and_has_no_speed(server, suite, launch, tmp_path):
    row = measure(launch, SUBJECT, load_suite(replace(suite, timed=False)), tmp_path).row
    assert [c[0] for c in server.calls] == ["generate", "flush", "trace", "trace"], "warm-up, then two turns"
    assert (row["accept_length"], row["drift"]) == (2.0, 0.0)
    assert not [
        name for name in row if name.startswith(("tok_s", "ttft", "itl", "steady", "prompt_s", "undis", "round"))
    ]
    (served,) = server.launches
    assert (served.alone, served.hidden_states) == (False, True)


def test_the_baseline_is_one_token_per_step_and_knows_no_head(server, suite, launch, tmp_path):
    plain = replace(launch, spec=Spec(), head=None)
    row = measure(plain, SUBJECT, load_suite(suite), tmp_path).row
    assert (row["accept_length"], row["accept_length_low"], row["accept_length_high"]) == (1.0, 1.0, 1.0)
    assert (row["head"], row["head_digest"], row["aux_layers"], row["speculative_algorithm"]) == (None,) * 4
    assert (row["histogram"], row["survival"], row["captured_width"]) == ([], [], None)
    assert (row["categories"], row["by_position"], row["drift"]) == ({}, [], None)
    assert not any(c[0] == "trace" for c in server.calls), "there are no steps to see"
    again = measure(plain, replace(SUBJECT, head_digest="other"), load_suite(suite), tmp_path)
    assert again.row == row
    assert len(server.launches) == 1, "shared by all heads"


def test_what_changes_a_number_is_measured_anew_and_nothing_else(server, suite, launch, tmp_path):
    prompts = load_suite(suite)

    def fingerprint(launch=launch, subject=SUBJECT, suite=suite):
        return measure(launch, subject, load_suite(suite), tmp_path, PROOF).row["fingerprint"]

    first = fingerprint()
    same = [
        fingerprint(replace(launch, server=replace(launch.server, port=31000, start_timeout_s=9.0))),
        fingerprint(subject=replace(SUBJECT, head="/moved/head")),
    ]
    assert same == [first, first]
    assert len(server.launches) == 1
    other = [
        fingerprint(replace(launch, spec=Spec(SpecKind.chain, num_draft_tokens=3))),
        fingerprint(replace(launch, server=replace(launch.server, context_length=2048))),
        fingerprint(subject=replace(SUBJECT, head_digest="i" * 16)),
        fingerprint(subject=replace(SUBJECT, target_digest="u" * 16)),
        fingerprint(suite=replace(suite, limit=2)),
        fingerprint(suite=replace(suite, concurrency=2)),
        fingerprint(suite=replace(suite, max_new_tokens=9)),
    ]
    assert len({first, *other}) == 8
    assert len(server.launches) == 8
    assert prompts.digest


def test_a_seed_is_another_measurement_where_something_is_drawn(server, suite, launch, tmp_path):
    def row(**changes):
        return measure(launch, SUBJECT, load_suite(replace(suite, **changes)), tmp_path, PROOF).row

    greedy = row()
    assert greedy["seed"] is None
    assert row(seed=3) == greedy
    one, two = row(temperature=0.7), row(temperature=0.7, seed=1)
    assert (one["seed"], two["seed"]) == (0, 1)
    assert len({r["fingerprint"] for r in (greedy, one, two)}) == 3
    # the request's own seed is not heeded by a server as it is started here
    assert [x.seed for x in server.launches] == [0, 0, 1]


def test_where_the_prompts_come_from_changes_nothing(server, suite, launch, tmp_path):
    first = measure(launch, SUBJECT, load_suite(suite), tmp_path, PROOF).row
    other = replace(suite, source="https://example.org/suite.jsonl", field="question", category="category")
    assert measure(launch, SUBJECT, load_suite(other), tmp_path, PROOF).row == first


def test_another_sglang_or_machine_is_another_measurement(server, launch, monkeypatch):
    one = identity(launch, SUBJECT)
    monkeypatch.setattr(measure_module, "version", lambda name: "0.0.other")
    two = identity(launch, SUBJECT)
    monkeypatch.setattr(measure_module, "hardware", lambda server: "another box")
    assert one != two != identity(launch, SUBJECT)


def test_a_server_elsewhere_is_never_taken_from_disk(launch, monkeypatch):
    monkeypatch.setattr(measure_module, "sglang_version", lambda server: "x")
    there = replace(launch, server=Server(kind=ServerKind.url, url="http://127.0.0.1:1"))
    assert identity(there, SUBJECT) != identity(there, SUBJECT)
    assert identity(there, SUBJECT)["hardware"] == "http://127.0.0.1:1"


def test_a_server_that_dies_leaves_no_row_and_is_measured_again(server, suite, launch, tmp_path):
    server.dies = True
    with pytest.raises(ServingFault, match="died"):
        measure(launch, SUBJECT, load_suite(suite), tmp_path, PROOF)
    assert not list(tmp_path.glob("measurements/*/rows.jsonl"))
    assert list(tmp_path.glob("measurements/*/server.log"))
    server.dies = False
    assert measure(launch, SUBJECT, load_suite(suite), tmp_path, PROOF).row["accept_length"] == 2.0


def test_speculation_without_a_verify_step_is_a_fault(server, suite, launch, tmp_path):
    # answers of one token never reach a verify step
    with pytest.raises(ServingFault, match="chain_5: no verify step"):
        measure(launch, SUBJECT, load_suite(replace(suite, max_new_tokens=1)), tmp_path, PROOF)


def test_a_suite_that_does_not_fit_starts_nothing(server, suite, launch, tmp_path):
    short = replace(launch, server=replace(launch.server, context_length=20))
    with pytest.raises(LabError, match="context_length=20"):
        measure(short, SUBJECT, load_suite(suite), tmp_path, PROOF)
    assert server.launches == []


def test_no_sglang(launch, monkeypatch):
    def absent(name):
        raise measure_module.PackageNotFoundError(name)

    monkeypatch.setattr(measure_module, "version", absent)
    with pytest.raises(LabError, match="sglang is not installed"):
        identity(launch, SUBJECT)


def test_a_measurement_that_was_touched_is_no_measurement(server, suite, launch, tmp_path):
    def again():
        return measure(launch, SUBJECT, load_suite(suite), tmp_path, PROOF)

    place = tmp_path / "measurements" / again().row["measurement"]
    whole = {name: (place / name).read_text() for name in ("rows.jsonl", "requests.jsonl", "manifest.json")}
    (place / "requests.jsonl").write_text(whole["requests.jsonl"][:-20])
    with pytest.raises(LabError, match=r"requests\.jsonl: .* expected\. Remove"):
        again()
    # of a measurement from before there were digests, what can be seen is seen
    manifest = json.loads(whole["manifest.json"])
    (place / "manifest.json").write_text(json.dumps({k: v for k, v in manifest.items() if k != "files"}))
    with pytest.raises(LabError, match=r"requests\.jsonl, line 4: not JSON"):
        again()
    (place / "requests.jsonl").write_text("".join(whole["requests.jsonl"].splitlines(keepends=True)[:3]))
    with pytest.raises(LabError, match="3 requests, the row beside it counts 4"):
        again()
    (place / "rows.jsonl").write_text("")
    with pytest.raises(LabError, match=r"rows\.jsonl: no row"):
        again()
    for name, text in whole.items():
        (place / name).write_text(text)
    assert again().row["accept_length"] == 2.0
    assert len(server.launches) == 1
