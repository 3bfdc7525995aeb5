"""Half-written files never take a good file's place, and a torn JSONL tail costs one row, not the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eagle_lab.config.digest import digest, file_digest, plain
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import (
    append_jsonl,
    check_fields,
    read_json,
    read_jsonl,
    read_tensors,
    replacing,
    write_json,
    write_text,
)
from eagle_lab.config.schema import Spec, SpecKind


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"a": 1})

    def fail() -> None:
        with replacing(file) as aside:
            aside.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with pytest.raises(TypeError):
        write_json(file, {"b": object()})
    assert read_json(file) == {"a": 1}
    assert list(tmp_path.iterdir()) == [file]


def test_a_writer_killed_in_the_middle_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")
    code = (
        "import os, sys; from pathlib import Path; from eagle_lab.config.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as aside:\n    aside.write_text('new'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(file)], check=False).returncode == -9
    assert file.read_text() == "old"


def test_rows_come_back(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"text": "né\n日本"}, {"n": 1.5}]
    for row in rows:
        append_jsonl(file, row)
    assert read_jsonl(file) == rows


@pytest.mark.parametrize("tail", ['{"n": 2', '{"n": 2}', '{"text": "né'])
def test_a_torn_tail_is_cut_off(tmp_path: Path, tail: str) -> None:
    """Also a whole row without its newline: the next append would be glued to it."""
    file = tmp_path / "rows.jsonl"
    append_jsonl(file, {"n": 1})
    with file.open("ab") as f:
        f.write(tail.encode()[:-1] if "né" in tail else tail.encode())
    assert read_jsonl(file, torn_tail=True) == [{"n": 1}]
    append_jsonl(file, {"n": 3})
    assert read_jsonl(file) == [{"n": 1}, {"n": 3}]


def test_a_file_that_is_only_a_torn_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n"')
    assert read_jsonl(file, torn_tail=True) == []
    assert file.read_bytes() == b""


def test_a_bad_row_in_the_middle_is_an_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n": 1}\n\n{"n": \n{"n": 3}\n')
    with pytest.raises(LabError, match=r"rows\.jsonl, line 3: not JSON"):
        read_jsonl(file, torn_tail=True)
    file.write_text('{"n": 1}\n[2]\n')
    with pytest.raises(LabError, match="line 2: list found"):
        read_jsonl(file)


@pytest.mark.parametrize("value", ["[" * 100_000, '{"a":' * 100_000, r'{"a": "\ud800"}', r'{"a": {"\uDC00": 1}}'])
def test_rows_that_no_reader_can_take(tmp_path: Path, value: str) -> None:
    """Brackets beyond the parser's depth, and half a surrogate pair."""
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"n": 1}}\n{value}\n')
    with pytest.raises(LabError, match=r"rows\.jsonl, line 2: not JSON"):
        read_jsonl(file)
    file.write_text(r'{"a": "\ud83d\ude00"}' + "\n")
    assert read_jsonl(file) == [{"a": "\U0001f600"}]


def test_json_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(LabError, match=r"config\.json: not JSON"):
        read_json(tmp_path / "config.json")


def test_other_peoples_files_are_not_cut(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}')
    assert read_jsonl(file) == [{"n": 1}, {"n": 2}]
    assert file.read_text() == '{"n": 1}\n{"n": 2}'


@pytest.mark.parametrize("read", [read_json, read_jsonl])
def test_unreadable_files(tmp_path: Path, read) -> None:
    with pytest.raises(LabError, match=r"gone\.json: cannot be read \(No such file"):
        read(tmp_path / "gone.json")


def test_digest_of_content_not_of_order() -> None:
    assert digest({"a": 1, "b": [Path("/x"), SpecKind.tree]}) == digest({"b": ["/x", "tree"], "a": 1})
    assert digest({"a": 1}) != digest({"a": 1.5})
    assert digest(Spec()) == digest(plain(Spec()))
    assert len(digest(None)) == 16


def test_digests_are_the_same_in_every_process() -> None:
    code = "from eagle_lab.config.digest import digest; print(digest({'b': {'x', 'x'} and 1, 'a': 'é'}))"
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest({"a": "é", "b": 1})


def test_file_digest_reads_bytes(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text(json.dumps([1]))
    b.write_text(json.dumps([2]))
    assert file_digest(a, b) != file_digest(b, a)


@pytest.mark.parametrize("text", ["[1]", "3", "null", '"a"'])
def test_json_that_is_no_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(LabError, match=r"a\.json: .* found, a JSON object is wanted"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("kind", "good", "bad", "said"),
    [
        (str, ["", "a"], [1, None, ["a"]], "text"),
        (int, [0, -3], ["3", 1.0, True, None], "a whole number"),
        (float, [0, 1.5], ["1.5", False], "a number"),
        (int | None, [1, None], ["1"], "a whole number or null"),
        (list[int], [[], [1, 2]], [[1, "2"], 1, {"1": 1}], "a list of whole numbers"),
        (dict[str, list[float]], [{}, {"a": [1, 0.5]}], [{"a": 1}, [[1]]], "an object"),
        (bool | None, [True, None], [1, "true"], "true or false or null"),
    ],
)
def test_fields_of_the_wrong_type_are_named(kind, good, bad, said) -> None:
    for value in good:
        check_fields({"x": value}, {"x": kind}, "here")
    for value in bad:
        with pytest.raises(LabError) as e:
            check_fields({"x": value}, {"x": kind}, "here", "Mend it.")
        assert str(e.value) == f"here: x={value!r}: {said} is wanted. Mend it."


def test_all_missing_fields_are_named_and_what_may_be_null_may_be_absent() -> None:
    with pytest.raises(LabError, match=r"^here: no value for a, b; c='x': a whole number is wanted\.$"):
        check_fields({"c": "x"}, {"a": str, "b": int, "c": int, "d": str | None}, "here")


def test_rows_are_checked_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n": 1}\n{"n": "1"}\n')
    with pytest.raises(LabError, match=r"rows\.jsonl, line 2: n='1': a whole number is wanted\. Mend it\."):
        read_jsonl(file, {"n": int}, "Mend it.")


@pytest.mark.parametrize("content", [b"", b"torn", (500).to_bytes(8, "little") + b"{}", None])
def test_torn_tensors(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "a.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(LabError, match=r"a\.safetensors: .*Mend it\."):
        read_tensors(file, "Mend it.", "np")
