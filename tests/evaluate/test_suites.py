"""What is asked, in which order, and what names it."""

import json
from dataclasses import replace

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.prompts import Conversation
from eagle_lab.config.schema import Suite
from eagle_lab.evaluate.suites import ask, check_fits, first_prompts, load_suite, traced
from eagle_lab.serve.chat import messages
from tests.evaluate.conftest import FakeClient, FakeTokenizer


def test_the_digest_is_of_the_content_not_of_the_asking(suite, suite_file, tmp_path):
    one = load_suite(suite)
    moved = tmp_path / "moved.jsonl"
    moved.write_text(suite_file.read_text())
    assert (
        load_suite(replace(suite, path=str(moved), name="other", concurrency=4, temperature=0.5)).digest == one.digest
    )
    assert load_suite(replace(suite, limit=2)).digest != one.digest
    moved.write_text(suite_file.read_text().replace("third", "other"))
    assert load_suite(replace(suite, path=str(moved))).digest != one.digest


def test_the_shipped_suite():
    assert len(load_suite(Suite(name="smoke")).conversations) == 48


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"max_new_tokens": 0}])
def test_bad_settings(suite, wrong):
    with pytest.raises(LabError, match="at least 1"):
        load_suite(replace(suite, **wrong))


def test_messages():
    talk = Conversation(id="x", turns=["a", "b"], system="be brief")
    assert [m["content"] for m in messages(talk, [])] == ["be brief", "a"]
    assert [(m["role"], m["content"]) for m in messages(talk, ["A"])] == [
        ("system", "be brief"),
        ("user", "a"),
        ("assistant", "A"),
        ("user", "b"),
    ]


def test_the_second_turn_sees_the_servers_answer_to_the_first(server, suite, launch):
    prompts = load_suite(suite)
    rows = ask(FakeClient(server, launch), FakeTokenizer(), prompts)
    assert [(r["prompt"], r["turn"]) for r in rows] == [("one", 0), ("two", 0), ("three", 0), ("two", 1)]
    assert rows[0]["category"] == "math"
    first, second = rows[1], rows[3]
    dialogue = [*messages(prompts.conversations[1], [first["text"]])]
    assert second["prompt_ids"] == FakeTokenizer().apply_chat_template(dialogue)
    assert first["text"].startswith("answer ")
    assert [r["started"] for r in rows] == [0, 1, 2, 3], "counted from the first request"
    assert json.loads(json.dumps(rows)) == rows


def test_settings_reach_the_server(server, suite, launch):
    settings = replace(suite, concurrency=3, temperature=0.7, seed=11, max_new_tokens=9)
    ask(FakeClient(server, launch), FakeTokenizer(), load_suite(settings))
    assert [call[2:] for call in server.calls] == [(9, 3, 0.7, 11)] * 2


def test_the_trace_asks_the_same_again_and_keeps_what_was_timed(server, suite, launch):
    prompts = load_suite(replace(suite, concurrency=3, temperature=0.7))
    rows = ask(FakeClient(server, launch), FakeTokenizer(), prompts)
    found = traced(FakeClient(server, launch), prompts, rows)
    assert [{**r, "correct_by_step": None} for r in found] == [{**r, "correct_by_step": None} for r in rows]
    assert found[0]["correct_by_step"] == [1] * 6
    assert server.calls[-1] == ("trace", [r["prompt_ids"] for r in rows], 13, 3, 0.7, None)


@pytest.mark.parametrize(
    ("lengths", "steps", "correct", "expected"),
    [
        ([1, 4, 5, 8], 3, 4, [2, 0, 2]),
        # the answer ended one token before the end of the last step
        ([1, 4, 5, 8], 3, 5, [2, 0, 3]),
        ([1], 0, 0, []),
        # two messages arrived as one
        ([1, 5, 8], 3, 4, None),
        ([4, 5, 8], 3, 4, None),
    ],
)
def test_what_each_step_accepted(server, suite, launch, lengths, steps, correct, expected):
    class Traced(FakeClient):
        def completion(self, ids, tokens):
            found = super().completion(ids, tokens)
            return replace(found, lengths=lengths, verify_ct=steps, correct_drafts=correct)

    prompts = load_suite(suite)
    client = Traced(server, launch)
    (row, *_) = traced(client, prompts, ask(client, FakeTokenizer(), prompts))
    assert row["correct_by_step"] == expected


def test_first_prompts(suite):
    assert first_prompts(load_suite(suite), FakeTokenizer(), 2) == [[4, 5, 8, 1], [4, 6, 1]]


def test_a_conversation_that_cannot_fit_is_refused_before_anything_starts(suite):
    prompts = load_suite(suite)
    # two turns: user second assistant user and then? -> 6 words, the end, 2 x 13 new tokens
    check_fits(prompts, FakeTokenizer(), 33)
    with pytest.raises(LabError, match=r"prompt two: 2 turn\(s\).*can reach 33 tokens.*context_length=32"):
        check_fits(prompts, FakeTokenizer(), 32)
