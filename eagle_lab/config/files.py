"""Writing without leaving half a file behind: write aside, then rename."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it takes `path`'s place, on failure it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        if aside.exists():
            aside.unlink()


def write_text(path: Path, text: str) -> None:
    with replacing(path) as aside, aside.open("w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Raises LabError naming the file when it cannot be read as JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise LabError(f"{path}: cannot be read ({e.strerror}).") from e
    except (ValueError, RecursionError) as e:  # brackets nested too deep
        raise LabError(f"{path}: not JSON ({e}).") from e


def append_jsonl(path: Path, row: dict[str, Any]) -> None:
    """One row, one write; a reader that finds a torn last line drops it (`read_jsonl(torn_tail=True)`)."""
    with path.open("a", encoding="utf-8") as f:
        f.write(json.dumps(row, ensure_ascii=False) + "\n")
        f.flush()


def read_jsonl(path: Path, *, torn_tail: bool = False) -> list[dict[str, Any]]:
    """Rows of a JSONL file; LabError names file and line of a bad row.

    torn_tail: the file is ours and its writer may have been killed: a last line that is incomplete is cut off the
    file, so that the next append starts on a line of its own.
    """
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise LabError(f"{path}: cannot be read ({e.strerror}).") from e
    if torn_tail and raw and not raw.endswith(b"\n"):
        raw = raw[: raw.rfind(b"\n") + 1]
        with replacing(path) as aside:
            aside.write_bytes(raw)
    return [row for _, row in numbered_rows(raw, path)]


def numbered_rows(raw: bytes, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, row) of JSONL bytes; blank lines are skipped, LabError names file and line of a bad row."""
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if rb"\ud" in line.lower():  # half a surrogate pair is text that nobody can write or tokenise
                json.dumps(row, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as e:
            raise LabError(f"{path}, line {number}: not JSON ({e}). One JSON object per line is wanted.") from e
        if not isinstance(row, dict):
            raise LabError(f"{path}, line {number}: {type(row).__name__} found, a JSON object is wanted.")
        yield number, row
