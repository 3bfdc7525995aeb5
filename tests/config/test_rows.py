"""Rows that no measurement wrote are refused with file and line, wherever they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.rows import read_requests, read_rows
from tests.report.conftest import baseline, chain

REQUEST = {
    **{"prompt": "a", "turn": 0, "prompt_ids": [1], "token_ids": [2, 3], "histogram": [0, 1]},
    **{"verify_ct": 1, "correct_drafts": 1},
}


def put(path: Path, *rows) -> Path:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def without(row: dict, name: str) -> dict:
    return {k: v for k, v in row.items() if k != name}


def test_whole_rows(tmp_path):
    rows = [baseline(), chain(5, 1.8, 26.0)]
    assert read_rows(put(tmp_path / "rows.jsonl", *rows)) == rows
    assert read_requests(put(tmp_path / "requests.jsonl", REQUEST, REQUEST), 2) == [REQUEST, REQUEST]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (json.dumps(chain(5, 1.8, 26.0))[:-9], "line 2: not JSON"),
        ("[1]\n", "line 2: list found"),
        ("\0\0\0\0", "line 2: not JSON"),
        (without(baseline(), "spec"), "line 2: no value for spec"),
        (without(baseline(), "accept_length"), "line 2: no value for accept_length"),
        ({**baseline(), "accept_length": "1.8"}, "line 2: accept_length='1.8': a number is wanted"),
        ({**baseline(), "survival": None}, "line 2: survival=None: a list"),
        ({**baseline(), "prompts": {"a": 3}}, "line 2: prompts={'a': 3}: an object"),
        ({**baseline(), "tok_s": float("nan")}, "line 2: not JSON (NaN is no number)"),
        ({**baseline(), "tok_s": -3.0}, "row none: tok_s=-3.0 (at least 0)"),
        ({**chain(5, 1.8, 26.0), "accept_length": 0.0}, "row chain_5: accept_length=0.0 (at least 1)"),
        (without(chain(5, 1.8, 26.0), "num_draft_tokens"), "row chain_5: no value for num_draft_tokens"),
    ],
)
def test_bad_rows(tmp_path, bad, said):
    with pytest.raises(LabError) as e:
        read_rows(put(tmp_path / "rows.jsonl", baseline(), bad))
    assert f"{tmp_path}/rows.jsonl, {said}" in str(e.value)
    assert f"If {tmp_path} is a measurement of ours, measure it again" in str(e.value)


def test_no_row(tmp_path):
    with pytest.raises(LabError, match="no row in it"):
        read_rows(put(tmp_path / "rows.jsonl"))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([REQUEST, '{"prompt'], "line 2: not JSON"),
        ([REQUEST, without(REQUEST, "token_ids")], "line 2: no value for token_ids"),
        ([REQUEST, {**REQUEST, "histogram": [1, "2"]}], "line 2: histogram="),
        ([REQUEST], "1 requests, the row beside it counts 2"),
    ],
)
def test_bad_requests(tmp_path, rows, said):
    with pytest.raises(LabError, match=said):
        read_requests(put(tmp_path / "requests.jsonl", *rows), 2)
