from collections import Counter

import pytest

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.fetch import named
from eagle_lab.config.schema import Source, SourceKind
from eagle_lab.data.contamination import Suites
from eagle_lab.data.synth import MAX_ROUNDS, opening, write_prompts


def source(count, **more):
    return Source(kind=SourceKind.self_synth, count=count, **more)


@pytest.fixture
def write(client, tokenizer, target, tmp_path):
    def run(count, file=tmp_path / "attempts.jsonl", **more):
        return write_prompts(
            source(count, **more),
            file,
            lambda: client,
            tokenizer,
            target.eos_token_ids,
            Suites([named("smoke")]),
            seed=100,
            concurrency=4,
        )

    return run


def test_the_opening_is_the_template_up_to_the_users_text(tokenizer, target):
    start, stops = opening(tokenizer, target.eos_token_ids)
    assert tokenizer.decode(start) == "<|turn|>user\n"
    assert stops == target.eos_token_ids


def test_a_default_system_prompt_is_part_of_the_opening(tokenizer, target):
    tokenizer.chat_template = (
        "{% if messages[0].role != 'system' %}<|turn|>system\nBe kind<|end|>\n{% endif %}" + tokenizer.chat_template
    )
    assert tokenizer.decode(opening(tokenizer, [2])[0]) == "<|turn|>system\nBe kind<|end|>\n<|turn|>user\n"


def test_a_special_token_after_the_users_text_ends_the_turn(tokenizer):
    tokenizer.chat_template = "{% for m in messages %}[INST] {{ m.content }}<|turn|>rest{% endfor %}"
    start, stops = opening(tokenizer, [2])
    assert tokenizer.decode(start) == "[INST]"
    assert stops == [1, 2]


@pytest.mark.parametrize("template", ["no turn at all", "{{ messages[0].content }}{{ messages[0].content }}"])
def test_a_template_without_a_place_for_the_user_is_refused(tokenizer, template):
    tokenizer.chat_template = template
    with pytest.raises(LabError, match="a user turn appears"):
        opening(tokenizer, [2])


def test_only_good_turns_are_kept_in_the_order_of_their_attempts(client, write):
    bad = {
        101: ("never ends and", "length"),
        102: ("  ", "stop"),
        103: ("Question  number 100?!", "stop"),
        104: ("What does yeast do in bread dough?", "stop"),
        105: ("Hello <|turn|>assistant", "stop"),
    }
    client.reply = lambda prompt, seed: bad.get(seed, (f" Question number {seed}? ", "stop"))
    kept, dropped = write(8)
    assert kept == [f"Question number {n}?" for n in (100, 106, 107, 108, 109, 110, 111, 112)]
    assert dropped == Counter({"unfinished": 1, "empty": 1, "duplicate": 1, "in a suite": 1, "with special tokens": 1})


def test_a_killed_stage_continues_and_writes_the_same(client, write, tmp_path):
    client.reply = lambda prompt, seed: (f"Question {seed}", "stop" if seed % 3 else "length")
    whole, dropped = write(20, file=tmp_path / "whole.jsonl")
    asked = len(client.asked)
    client.asked.clear()
    client.die_after = 9
    with pytest.raises(ServingFault):
        write(20)
    client.die_after = None
    assert write(20) == (whole, dropped)
    assert len(client.asked) == asked
    client.asked.clear()
    assert write(20) == (whole, dropped)
    assert client.asked == []


def test_rounds_go_on_until_the_count_is_there(client, write):
    client.reply = lambda prompt, seed: (f"Question {seed}", "stop" if seed % 5 == 0 else "length")
    kept, dropped = write(10)
    assert len(kept) == 10
    assert dropped["unfinished"] >= 40


def test_a_target_that_never_ends_a_turn_is_given_up_early(client, write):
    client.reply = lambda prompt, seed: (f"Question {seed}", "length")
    with pytest.raises(LabError, match=r"0 of 10 prompts after \d+ attempts; dropped \d+ unfinished"):
        write(10)
    assert len(client.asked) < 100


def test_a_target_that_repeats_itself_is_given_up(client, write):
    client.reply = lambda prompt, seed: (f"Question {seed % 7}", "stop")
    with pytest.raises(LabError, match=r"7 of 10 prompts after .* duplicate"):
        write(10)
    assert len(client.asked) < MAX_ROUNDS * 10 * 6
