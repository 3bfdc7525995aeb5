"""What makes two configs the same work."""

from __future__ import annotations

import os
from pathlib import Path

from eagle_lab.config.content import content_digest


def test_an_edited_input_file_is_other_content(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("{}\n")
    config = {"name": "a", "data": {"sources": [{"path": str(file)}]}, "head": None}
    before = content_digest("run", config)
    assert content_digest("run", {**config, "name": "b"}) == before
    file.write_text('{"a": 1}\n')
    assert content_digest("run", config) != before


def test_a_head_directory_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = content_digest("bench", {"head": str(tmp_path)})
    os.utime(tmp_path / "config.json", ns=(1, 1))
    assert content_digest("bench", {"head": str(tmp_path)}) != before


def test_a_template_is_no_path() -> None:
    assert content_digest("run", {"target": {"chat_template": "{% if x %}/" + "y" * 5000}})
