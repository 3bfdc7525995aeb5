"""A real server whose counters are known before it starts: the whole way from the suite to the row."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eagle_lab.config.digest import file_digest
from eagle_lab.config.schema import Spec, SpecKind, Suite
from eagle_lab.evaluate import intervals
from eagle_lab.evaluate.bench import bench_point
from eagle_lab.evaluate.measure import Measurement, Subject, measure
from eagle_lab.evaluate.suites import load_suite
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.process import sharing
from tests.known_acceptance import AUX, CPU, known_histogram, known_pair, known_rounds

STEPS, TOKENS = 3, 40
# prompts end with their own last character, so that they start at different points of the cycle
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def point(tmp_path_factory):
    """(launch of the chain, subject, prompts, root)."""
    root = tmp_path_factory.mktemp("known")
    target, head = known_pair(root, TEMPLATE)
    suite = root / "suite.jsonl"
    turns = [["q: a"], ["another: b"], ["c", "and d"], ["then: z"], ["q: !"], ["0"]]
    suite.write_text("".join(json.dumps({"id": f"p{i}", "turns": t}) + "\n" for i, t in enumerate(turns)))
    prompts = load_suite(Suite(name="known", path=str(suite), max_new_tokens=TOKENS, concurrency=2))
    subject = Subject("known", target.digest, str(head), file_digest(head / "model.safetensors"), AUX)
    launch = Launch(target.path, CPU, Spec(SpecKind.chain, num_draft_tokens=STEPS + 1), head)
    return launch, subject, prompts, root


def check(found: Measurement) -> None:
    histograms = []
    for r in found.requests:
        last = r["prompt_ids"][-1]
        assert r["token_ids"] == list(range(last + 1, last + 1 + TOKENS)), "prompts are chosen so that nothing wraps"
        histograms.append(known_histogram(last, TOKENS, STEPS))
        assert intervals.pooled_histogram([r["histogram"], [0] * (STEPS + 1)]) == histograms[-1]
        # None: a busy machine merged two messages on their way
        assert r["correct_by_step"] in (None, known_rounds(last, TOKENS, STEPS))
    assert any(r["correct_by_step"] for r in found.requests)
    pooled = intervals.pooled_histogram(histograms)
    steps, correct = sum(pooled), sum(k * n for k, n in enumerate(pooled))
    row = found.row
    assert row["histogram"] == pooled
    assert row["accept_length"] == 1 + correct / steps
    assert row["accept_length_low"] <= row["accept_length"] <= row["accept_length_high"]
    assert 1 + sum(row["survival"]) == pytest.approx(row["accept_length"])
    assert [s["to"] for s in row["by_position"]] == [32, TOKENS]
    assert row["drift_low"] <= row["drift"] <= row["drift_high"]
    assert row["requests"] == 7
    assert row["completion_tokens"] == 7 * TOKENS


def test_chain_with_baseline_and_proof(point):
    launch, subject, prompts, root = point
    with sharing():
        base, row = bench_point(launch, subject, prompts, root, len(AUX) * 64)
        check(measure(launch, subject, prompts, root))
    assert (row["captured_width"], row["speculative_algorithm"]) == (len(AUX) * 64, "EAGLE3")
    assert (row["differing_prompts"], row["requests"]) == (0, base["requests"])
    assert row["speedup"] == row["tok_s"] / base["tok_s"]
    assert all(r["steady_s"] > r["prompt_s"] > 0 for r in (base, row))
    assert len({tuple(r) for r in map(tuple, row["prompts"].values())}) > 1, (
        "prompts differ, or the interval says nothing"
    )
    assert base["accept_length"] == 1.0


def test_tree(point):
    launch, subject, prompts, root = point
    tree = replace(launch, spec=Spec(SpecKind.tree, STEPS, 4, 12))
    check(measure(tree, subject, prompts, root))


@pytest.mark.long  # a server per seed
def test_a_seed_decides_what_is_sampled(point):
    launch, subject, prompts, root = point
    plain = replace(launch, spec=Spec(), head=None)

    def texts(seed: int, root) -> list[list[int]]:
        # hot enough that the peaked logits of this target leave a choice
        asked = replace(prompts, settings=replace(prompts.settings, temperature=20.0, seed=seed, concurrency=1))
        return [r["token_ids"] for r in measure(plain, subject, asked, root).requests]

    one = texts(1, root)
    assert texts(1, root / "again") == one
    assert texts(2, root) != one
