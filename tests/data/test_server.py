"""The whole build against a real SGLang server: its ids, its end-of-turn tokens, its multi-turn prompts."""

import json

import pytest

from eagle_lab.config.schema import Source, SourceKind
from eagle_lab.data.build import build
from eagle_lab.data.contamination import words
from eagle_lab.data.dataset import load
from eagle_lab.serve.chat import messages, prompt_ids
from eagle_lab.target.model import TargetModel

pytestmark = pytest.mark.server


def test_self_written_and_given_prompts_are_answered_by_the_real_server(configured, jsonl, target, tokenizer, tmp_path):
    file = jsonl({"id": "two", "turns": ["What is the largest planet?", "Why?"]}, {"turns": ["Tell me about rivers"]})
    config = configured(
        Source(kind=SourceKind.self_synth, count=6, max_new_tokens=96),
        file,
        answers={"max_new_tokens": 24, "concurrency": 4},
        holdout=0.2,
    )
    done = build(config, target, tmp_path)
    dataset = load(done.path)
    rows = [json.loads(line) for line in (done.path / "rows.jsonl").read_text().splitlines()]

    attempts = [json.loads(s) for f in (tmp_path / "prompts").glob("*/attempts.jsonl") for s in f.open()]
    written = [r["user"] for r in rows if r["category"] == "self_synth"]
    assert len(set(map(words, written))) == len(written)
    ended = {tokenizer.decode(a["token_ids"][:-1]).strip() for a in attempts if a["token_ids"][-1] == 2}
    assert set(written) <= ended

    # the prompt is what serving renders, the second turn behind the first answer
    by_turn = {(r["conversation"], r["turn"]): r for r in rows}
    model = TargetModel(target, [2, 4, 5])
    conversation = type("C", (), {"system": None, "turns": ["What is the largest planet?", "Why?"]})
    for turn in (0, 1):
        found = by_turn["1/two", turn]
        row = dataset.rows[found["row"]]
        prompt = prompt_ids(tokenizer, messages(conversation, [by_turn["1/two", 0]["answer"]][:turn]))
        assert row.input_ids[: row.answer_start].tolist() == prompt
        # greedy by transformers: the server's ids are this target's own, the end-of-turn token included
        assert row.answer_ids.tolist() == model.greedy(prompt, len(row.answer_ids))
        assert row.ends_with_eos == (found["finish_reason"] == "stop")
        assert row.ends_with_eos or len(row.answer_ids) == 24
    assert build(config, target, tmp_path).reused
