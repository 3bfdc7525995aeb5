"""config/prompts.py: the one reader of training prompts and suites."""

import gzip
import json
from pathlib import Path

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.prompts import read_conversations, suite_path
from eagle_lab.config.schema import RowFormat

SAMPLES = Path(__file__).parents[3] / "shared" / "data"
USER, BOT = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


def write(path: Path, *rows) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def test_each_shape_gives_the_same_conversation(tmp_path):
    file = write(
        tmp_path / "mixed.jsonl",
        {"messages": [{"role": "system", "content": "be brief"}, USER, BOT, USER]},
        {
            "conversations": [
                {"from": "system", "value": "be brief"},
                {"from": "human", "value": "hi"},
                {"from": "gpt", "value": "hello"},
                {"from": "human", "value": "hi"},
            ]
        },
        {"id": "mine", "turns": ["hi", "hi"], "system": "be brief", "category": "greeting"},
    )
    chat, sharegpt, turns = read_conversations(file)
    assert chat.turns == sharegpt.turns == turns.turns == ["hi", "hi"]
    assert chat.system == sharegpt.system == turns.system == "be brief"
    assert chat.answers == sharegpt.answers == ["hello"]
    assert turns.answers is None
    assert [c.id for c in (chat, sharegpt, turns)] == ["mixed-1", "mixed-2", "mine"]
    assert turns.category == "greeting"


def test_named_field_limit_and_blank_lines(tmp_path):
    file = write(tmp_path / "f.jsonl", {"question": "one?"}, "", {"question": "two?"}, {"question": "three?"})
    found = read_conversations(file, RowFormat.field, "question", limit=2)
    assert [(c.id, c.turns) for c in found] == [("f-1", ["one?"]), ("f-3", ["two?"])]


def test_auto_takes_the_named_field_of_rows_that_say_nothing_themselves(tmp_path):
    file = write(tmp_path / "f.jsonl", {"question": "one?", "answer": "1"}, {"turns": ["two?"]})
    assert [c.turns for c in read_conversations(file, field="question")] == [["one?"], ["two?"]]
    with pytest.raises(
        LabError, match="none of messages, conversations, turns, prompt among the keys question, answer"
    ):
        read_conversations(file, field="prompt")


def test_alpaca_rows_bring_their_input(tmp_path):
    rows = [{"instruction": "Add.", "input": "1 and 2"}, {"instruction": "Sing.", "input": " "}]
    found = read_conversations(write(tmp_path / "f.jsonl", *rows), RowFormat.field, "instruction")
    assert [c.turns for c in found] == [["Add.\n\n1 and 2"], ["Sing."]]


def test_a_json_list_and_a_gzipped_file_read_as_their_rows(tmp_path):
    rows = [{"prompt": "one", "set": "easy"}, {"prompt": "two", "set": "hard"}]
    listed, packed = tmp_path / "f.json", tmp_path / "f.jsonl.gz"
    listed.write_text(json.dumps(rows))
    packed.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode()))
    for file in (listed, packed):
        found = read_conversations(file, field="prompt", category="set")
        assert [(c.turns, c.category) for c in found] == [(["one"], "easy"), (["two"], "hard")]
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(LabError, match="cannot be unpacked"):
        read_conversations(packed, field="prompt")
    listed.write_text("[1]")
    with pytest.raises(LabError, match="row 1: int found"):
        read_conversations(listed)
    listed.write_text("[{]")
    with pytest.raises(LabError, match="not JSON"):
        read_conversations(listed)


def test_ids_are_unique_within_a_file(tmp_path):
    file = write(tmp_path / "f.jsonl", *({"id": 7, "turns": ["a"]} for _ in range(3)))
    assert [c.id for c in read_conversations(file)] == ["7", "7@2", "7@3"]


def test_text_parts_are_joined(tmp_path):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read_conversations(write(tmp_path / "f.jsonl", {"messages": [{"role": "user", "content": parts}]}))[
        0
    ].turns == ["ab"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "list found"),
        ({"text": "hello"}, "format=field field=text"),
        ({"messages": []}, "no user turn"),
        ({"messages": [{"role": "system", "content": "s"}]}, "no user turn"),
        ({"messages": [USER, USER]}, "roles out of order"),
        ({"messages": [BOT, USER]}, "roles out of order"),
        ({"messages": [USER, {"role": "tool", "content": "x"}]}, "role 'tool'"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "role \"['user']\""),
        ({"messages": [{"role": "user"}]}, "no object with"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "only text"),
        ({"messages": "hi"}, "list of messages"),
        ({"conversations": [{"from": "human", "value": "  "}]}, "blank"),
        ({"turns": []}, "no user turn"),
        ({"turns": ["a", ""]}, "user turn 2 is blank"),
        ({"turns": [1]}, "text is wanted"),
        ({"turns": "a"}, "list of user turns"),
    ],
)
def test_bad_rows_name_file_and_line(tmp_path, row, words):
    file = write(tmp_path / "bad.jsonl", {"turns": ["good"]}, row)
    with pytest.raises(LabError) as e:
        read_conversations(file)
    assert str(e.value).startswith(f"{file}, line 2: ")
    assert words in str(e.value)


def test_a_missing_field_names_the_keys_there_are(tmp_path):
    file = write(tmp_path / "f.jsonl", {"prompt": "x"})
    with pytest.raises(LabError, match=r"line 1: no key 'question' .* the row has prompt"):
        read_conversations(file, RowFormat.field, "question")


def test_unreadable_and_empty_files(tmp_path):
    with pytest.raises(LabError, match="cannot be read"):
        read_conversations(tmp_path / "none.jsonl")
    with pytest.raises(LabError, match="cannot be read"):
        read_conversations(tmp_path)
    with pytest.raises(LabError, match="no rows"):
        read_conversations(write(tmp_path / "empty.jsonl", "", " "))
    with pytest.raises(LabError, match="limit of 0"):
        read_conversations(tmp_path / "empty.jsonl", limit=0)


def test_suite_path(tmp_path):
    assert suite_path("smoke").name == "smoke.jsonl"
    with pytest.raises(LabError, match=r"no suite 'smoek' is shipped \(there are: .*smoke"):
        suite_path("smoek")
    with pytest.raises(LabError, match="no file"):
        suite_path("mine", str(tmp_path / "mine.jsonl"))


def test_shipped_smoke_suite():
    suite = read_conversations(suite_path("smoke"))
    assert len(suite) >= 40
    assert all(c.category and not c.id.startswith("smoke-") for c in suite)
    assert len({c.id for c in suite}) == len({c.turns[0] for c in suite}) == len(suite)
    assert len({c.category for c in suite}) >= 8
    assert sum(len(c.turns) == 2 for c in suite) >= 3


@pytest.mark.skipif(not SAMPLES.exists(), reason="no sample files beside the checkout")
@pytest.mark.parametrize(
    ("file", "field", "count"),
    [
        ("prompts/mt_bench.jsonl", None, 80),
        ("prompts/gsm8k.jsonl", None, 80),
        ("prompts/humaneval.jsonl", None, 80),
        ("prompts/alpaca.jsonl", None, 80),
        ("instructions/gsm8k_train.jsonl", "question", 7473),
        ("instructions/instruction_wild_seed_en.jsonl", "instruction", 429),
        ("instructions/alpaca_seed_tasks.jsonl", "instruction", 175),
    ],
)
def test_sample_files(file, field, count):
    found = read_conversations(SAMPLES / file, RowFormat.field if field else RowFormat.auto, field)
    assert len(found) == count
    assert len({c.id for c in found}) == count


@pytest.mark.skipif(not SAMPLES.exists(), reason="no sample files beside the checkout")
def test_a_sample_file_with_a_bad_escape_is_refused_by_line():
    with pytest.raises(LabError, match=r"instruction_wild_v2\.jsonl, line 563: not JSON"):
        read_conversations(SAMPLES / "instructions/instruction_wild_v2.jsonl", RowFormat.field, "instruction")
