import json

import numpy as np
import pytest

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.schema import RowFormat, Source, SourceKind
from eagle_lab.data.build import build
from eagle_lab.data.dataset import load
from eagle_lab.serve.chat import messages, prompt_ids

TOPICS = ["rivers", "hills", "lakes", "caves", "reefs", "dunes", "forests", "islands", "meadows", "marshes"]


def prompts(n, **extra):
    return [{"id": f"c{i}", "turns": [f"Tell me about {TOPICS[i % 10]} number {i}"], **extra} for i in range(n)]


def rows_of(stage):
    return [json.loads(line) for line in (stage.path / "rows.jsonl").read_text().splitlines()]


def test_rows_are_the_served_prompt_and_the_returned_ids(client, configured, jsonl, target, tokenizer, tmp_path):
    file = jsonl({"turns": ["First question?", "And the second?"], "system": "Be brief", "category": "pair"})
    client.reply = lambda prompt, seed: ("one", "stop") if "second" not in prompt else ("two words", "length")
    done = build(configured(file, holdout=0.0), target, tmp_path)
    dataset = load(done.path)
    conversation = type("C", (), {"system": "Be brief", "turns": ["First question?", "And the second?"]})
    for row, turn, text, eos in zip(dataset.rows, (0, 1), ("one", "two words"), (True, False), strict=True):
        asked = prompt_ids(tokenizer, messages(conversation, ["one"][:turn]))
        assert asked in client.asked
        answer = tokenizer(text, add_special_tokens=False)["input_ids"] + ([target.eos_token_ids[0]] if eos else [])
        assert row.input_ids.dtype == np.int32
        assert row.input_ids[: row.answer_start].tolist() == asked
        assert row.answer_ids.tolist() == answer
        assert row.ends_with_eos is eos
    assert [(r["turn"], r["category"], r["user"], r["answer"]) for r in rows_of(done)] == [
        (0, "pair", "First question?", "one"),
        (1, "pair", "And the second?", "two words"),
    ]
    manifest = dataset.manifest
    assert manifest["rows"] == 2
    assert manifest["tokens"] == sum(len(r.input_ids) for r in dataset.rows)
    assert manifest["supervised_tokens"] == sum(len(r.answer_ids) for r in dataset.rows)
    assert manifest["unique_supervised_tokens"] == len(set(dataset.rows.answer_ids().tolist()))
    assert sum(manifest["mask_ratio_histogram"]) == 2
    assert manifest["finish_reasons"] == {"stop": 1, "length": 1}


def test_the_server_takes_as_many_requests_as_are_sent(client, configured, jsonl, target, tmp_path):
    build(configured(jsonl(*prompts(3)), answers={"concurrency": 7}), target, tmp_path)
    assert client.launch.server.max_running_requests == 7
    assert client.launch.spec.kind.value == "none"
    assert client.launch.head is None


def test_a_killed_build_continues_where_it_was(client, configured, jsonl, target, tmp_path):
    config = configured(jsonl(*prompts(12)), holdout=0.25)
    whole = build(config, target, tmp_path / "whole")
    client.asked.clear()
    client.die_after = 5
    with pytest.raises(ServingFault):
        build(config, target, tmp_path / "killed")
    (answers,) = (tmp_path / "killed" / "answers").glob("*/answers.jsonl")
    with answers.open("a") as f:
        f.write('{"id": "0/c0", "turn"')
    client.die_after = None
    client.asked.clear()
    done = build(config, target, tmp_path / "killed")
    assert len(client.asked) == 7
    for name in ("tokens.safetensors", "rows.jsonl"):
        assert (done.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_a_finished_dataset_is_found_without_a_server(client, configured, jsonl, target, tmp_path):
    file = jsonl(*prompts(4))
    first = build(configured(file), target, tmp_path)
    again = build(configured(file, answers={"concurrency": 3}), target, tmp_path)
    assert (first.reused, again.reused, client.starts) == (False, True, 1)
    assert again.path == first.path


def test_another_length_or_holdout_generates_nothing_anew(client, configured, jsonl, target, tmp_path):
    file = jsonl(*prompts(4))
    first = build(configured(file), target, tmp_path)
    other = build(configured(file, max_length=40, holdout=0.5), target, tmp_path)
    assert other.path != first.path
    assert client.starts == 1


def test_the_directory_follows_the_content_of_a_source_not_its_place(client, configured, jsonl, target, tmp_path):
    first = build(configured(jsonl(*prompts(4))), target, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "prompts.jsonl").rename(tmp_path / "elsewhere" / "prompts.jsonl")
    assert build(configured(moved), target, tmp_path).path == first.path
    assert build(configured(jsonl(*prompts(5))), target, tmp_path).path != first.path
    assert build(configured(moved, answers={"max_new_tokens": 9}), target, tmp_path).path != first.path
    assert build(configured(moved, decontaminate=[]), target, tmp_path).path != first.path


def test_holdout_takes_whole_conversations_by_their_id(client, configured, jsonl, target, tmp_path):
    two_turns = [{"id": f"c{i}", "turns": [f"Tell me about {i}", f"And about {i} again"]} for i in range(20)]
    file = jsonl(*two_turns)
    done = build(configured(file, holdout=0.25), target, tmp_path)
    held = {r["conversation"] for r in rows_of(done) if r["holdout"]}
    kept = {r["conversation"] for r in rows_of(done) if not r["holdout"]}
    assert len(held) == 5
    assert not held & kept
    dataset = load(done.path)
    assert (len(dataset.holdout), len(dataset.train), len(dataset.rows)) == (10, 30, 40)
    # the same conversations whatever their order in the file
    shuffled = build(configured(jsonl(*two_turns[::-1]), holdout=0.25), target, tmp_path)
    assert {r["conversation"] for r in rows_of(shuffled) if r["holdout"]} == held
    reseeded = build(configured(file, holdout=0.25, seed=1), target, tmp_path)
    assert {r["conversation"] for r in rows_of(reseeded) if r["holdout"]} != held


def test_a_planted_suite_prompt_is_dropped(client, configured, jsonl, target, tmp_path):
    suite = jsonl({"turns": ["Name nine birds that cannot fly and say where they live", "Short one?"]}, name="suite")
    file = jsonl(
        {"turns": ["please NAME nine birds, that cannot fly and say it in verse"]},
        {"turns": ["Hello there", "short one"]},
        {"turns": ["name seven birds that cannot fly and say where they live"]},
        {"turns": ["A question that no suite asks"]},
    )
    done = build(configured(file, decontaminate=[str(suite)], holdout=0.0), target, tmp_path)
    assert done.manifest["dropped"] == {"prompt in a suite": 3}
    assert [r["user"] for r in rows_of(done)] == ["A question that no suite asks"]


def test_the_shipped_suite_is_kept_out_by_default(client, configured, jsonl, target, tmp_path):
    file = jsonl({"turns": ["What does yeast do in bread dough?"]}, *prompts(2))
    assert build(configured(file), target, tmp_path).manifest["dropped"] == {"prompt in a suite": 1}


def test_duplicates_are_dropped_over_all_sources(client, configured, jsonl, target, tmp_path):
    one, two = jsonl(*prompts(3), name="one"), jsonl(*prompts(4), name="two")
    done = build(configured(one, two), target, tmp_path)
    assert done.manifest["rows"] == 4
    assert done.manifest["dropped"] == {"duplicate prompt": 3}
    assert done.manifest["found"] == [3, 4]


def test_long_rows_are_cut_and_full_prompts_dropped(client, configured, jsonl, target, tokenizer, tmp_path):
    client.reply = lambda prompt, seed: ("a fairly long answer with many words in it", "stop")
    long_prompt = " ".join(f"word{i}" for i in range(200))
    file = jsonl({"turns": ["Short?"]}, {"turns": [long_prompt]})
    length = len(prompt_ids(tokenizer, [{"role": "user", "content": "Short?"}])) + 3
    done = build(configured(file, max_length=length, holdout=0.0), target, tmp_path)
    (row,) = load(done.path).rows
    assert (len(row.input_ids), len(row.answer_ids), row.ends_with_eos) == (length, 3, False)
    assert done.manifest["dropped"] == {"prompt fills max_length": 1}
    assert done.manifest["cut_at_max_length"] == 1


def test_prompts_over_the_context_are_dropped_with_their_later_turns(client, configured, jsonl, target, tmp_path):
    file = jsonl({"turns": [" ".join(f"word{i}" for i in range(300)), "more"]}, *prompts(1))
    config = configured(file, context_length=256, answers={"max_new_tokens": 16}, holdout=0.0)
    done = build(config, target, tmp_path)
    assert done.manifest["dropped"] == {"prompt and answer over server.context_length": 2}
    assert done.manifest["rows"] == 1


def test_nothing_left_is_an_error_that_says_why(client, configured, jsonl, target, tmp_path):
    client.reply = lambda prompt, seed: ("", "stop")
    with pytest.raises(LabError, match=r"no row with a supervised token is left \(4 empty answer\)"):
        build(configured(jsonl(*prompts(4))), target, tmp_path)
    with pytest.raises(LabError, match="no prompt is left of 1 read"):
        build(configured(jsonl({"turns": ["What does yeast do in bread dough?"]})), target, tmp_path)
    with pytest.raises(LabError, match=r"do not fit server\.context_length=64"):
        build(configured(jsonl(*prompts(4)), context_length=64), target, tmp_path)
    assert not list((tmp_path / "datasets").glob("*/manifest.json"))


def test_a_foreign_token_id_is_refused(client, configured, jsonl, target, tmp_path):
    client.eos = 100_000
    with pytest.raises(LabError, match=r"token id 100000, the target's vocabulary is 512"):
        build(configured(jsonl(*prompts(2))), target, tmp_path)


def test_a_count_larger_than_the_file_is_refused(client, configured, jsonl, target, tmp_path):
    file = jsonl({"q": "One?"}, {"q": "Two?"})
    source = Source(path=str(file), format=RowFormat.field, field="q", count=3)
    with pytest.raises(LabError, match=r"count=3 of .* has 2 conversations"):
        build(configured(source), target, tmp_path)
    with pytest.raises(LabError, match="no file"):
        build(configured(tmp_path / "none.jsonl"), target, tmp_path)


def chats(*pairs):
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(pairs)]}


def test_answers_of_the_source_are_rendered_by_the_template(client, configured, jsonl, target, tokenizer, tmp_path):
    file = jsonl(chats("Who?", "Nobody.", "Why?", "Because of <|end|> it."), chats("When?"), chats("How?", "So."))
    config = configured(file, answers={"regenerate": False}, holdout=0.0)
    done = build(config, target, tmp_path)
    assert client.starts == 0
    assert [r["answer"] for r in rows_of(done)] == ["Nobody.", "So."]
    assert done.manifest["dropped"] == {"answer with special tokens": 1, "turn without an answer in the source": 1}
    assert done.manifest["finish_reasons"] == {"given": 2}
    row = load(done.path).rows[0]
    assert tokenizer.decode(row.input_ids.tolist()) == "<|turn|>user\nWho?<|end|>\n<|turn|>assistant\nNobody.<|end|>"
    assert tokenizer.decode(row.answer_ids.tolist()) == "Nobody.<|end|>"
    assert row.ends_with_eos


def test_a_template_that_moves_the_prompt_is_refused(
    client, configured, jsonl, target, tokenizer, tmp_path, monkeypatch
):
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
    )
    monkeypatch.setattr("eagle_lab.data.build.chat.load_tokenizer", lambda path: tokenizer)
    config = configured(jsonl(chats("Who?", "Nobody.")), answers={"regenerate": False})
    with pytest.raises(LabError) as e:
        build(config, target, tmp_path)
    assert "At character 10 the prompt goes on with '<bot>', the conversation with '[assistant]Nobody.'" in str(e.value)
    assert str(target.path) in str(e.value)


def test_source_answers_must_exist(client, configured, jsonl, target, tmp_path):
    with pytest.raises(LabError, match="none of 2 conversations has an answer"):
        build(configured(jsonl(*prompts(2)), answers={"regenerate": False}), target, tmp_path)
    synth = Source(kind=SourceKind.self_synth, count=2)
    with pytest.raises(LabError, match="regenerate=false with a self_synth source"):
        build(configured(synth, answers={"regenerate": False}), target, tmp_path)


@pytest.mark.parametrize("tail", ['{"id": "0/p-1"}\n', "[3]\n", '{"id": "0/x", "turn": "0"}\n'])
def test_answers_that_nobody_wrote_are_named(client, configured, jsonl, target, tmp_path, tail):
    client.die_after = 2
    config = configured(jsonl(*({"turns": [f"Tell me about number {i}"]} for i in range(4))))
    with pytest.raises(ServingFault):
        build(config, target, tmp_path)
    (file,) = tmp_path.glob("answers/*/answers.jsonl")
    with file.open("a") as f:
        f.write(tail)
    client.die_after = None
    with pytest.raises(LabError, match=rf"answers\.jsonl, line 3: .*Remove {file}"):
        build(config, target, tmp_path)


def test_finished_answers_that_were_cut_are_not_asked_for_again(client, configured, jsonl, target, tmp_path):
    """The file grows while the stage is in progress; once it is finished it may not change."""
    source = jsonl(*({"turns": [f"Tell me about number {i}"]} for i in range(4)))
    build(configured(source), target, tmp_path)
    (file,) = tmp_path.glob("answers/*/answers.jsonl")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(LabError, match=r"answers\.jsonl: .* expected\. Remove"):
        build(configured(source, max_length=64), target, tmp_path)
