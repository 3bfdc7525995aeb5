"""Conversations from JSONL (or a JSON list, gzipped or not): the one reader of training prompts and of suites.

Four row shapes, told apart by their key: chat `messages`, ShareGPT `conversations`, `turns`, or one named field.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import numbered_rows
from eagle_lab.config.paths import expanded, package_dir
from eagle_lab.config.schema import RowFormat

ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant"}
KEYS = {RowFormat.messages: "messages", RowFormat.sharegpt: "conversations", RowFormat.turns: "turns"}

GZIP = b"\x1f\x8b"
IDS = ("id", "question_id", "task_id")


@dataclass(frozen=True)
class Conversation:
    id: str
    """Unique within its file: the row's `id`, `question_id` or `task_id`, else FILE-LINE."""
    turns: list[str]
    """User turns, at least one, none blank."""
    system: str | None = None
    answers: list[str] | None = None
    """The assistant turns found in the file, for turns[0], turns[1], ...; may lack the last. None = there are none."""
    category: str | None = None


def suite_path(name: str, path: str | None = None) -> Path:
    """The JSONL file of a suite: `path` if given, else the suite of this name shipped with the package."""
    if path is not None:
        found = expanded("suite.path", path)
        if not found.is_file():
            raise LabError(f"suite {name}: no file {found}. Give a JSONL file of prompts, suite.path=/some/file.jsonl.")
        return found
    shipped = package_dir() / "suites"
    found = shipped / f"{name}.jsonl"
    if not found.is_file():
        names = ", ".join(sorted(p.stem for p in shipped.glob("*.jsonl")))
        raise LabError(
            f"no suite {name!r} is shipped (there are: {names}). Give a JSONL file of prompts: "
            "suite.path=/some/file.jsonl."
        )
    return found


def source_file(path: str) -> Path:
    """The JSONL file of a data source."""
    found = expanded("data.sources.path", path)
    if not found.is_file():
        raise LabError(
            f"data.sources: no file {found}. Give a JSONL file, 'data.sources=[{{path: /some/file.jsonl}}]'."
        )
    return found


def read_conversations(
    path: Path,
    format: RowFormat = RowFormat.auto,
    field: str | None = None,
    limit: int | None = None,
    category: str = "category",
) -> list[Conversation]:
    """The first `limit` conversations of a file (None = all), in file order.

    category: the key that holds a row's category.

    Raises LabError with file and line for a file that cannot be read or is empty, a bad line, a row of another shape,
    a row without a user turn, and roles out of order.
    """
    if limit is not None and limit < 1:
        raise LabError(f"{path}: a limit of {limit} conversations leaves nothing to read. Use at least 1, or null.")
    found: list[Conversation] = []
    ids: set[str] = set()
    for line, row in _rows(path):
        try:
            conversation = _parse(row, format, field, category, default_id=f"{path.stem}-{line}")
        except LabError as e:
            raise LabError(f"{path}, line {line}: {e}") from None
        if conversation.id in ids:
            conversation = replace(conversation, id=f"{conversation.id}@{line}")
        ids.add(conversation.id)
        found.append(conversation)
        if len(found) == limit:
            break
    if not found:
        raise LabError(f"{path}, line 1: the file has no rows. One JSON object per line is wanted.")
    return found


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise LabError(f"{path}: cannot be read ({e.strerror}). Give a JSONL file of prompts or conversations.") from e
    try:
        raw = gzip.decompress(raw) if raw.startswith(GZIP) else raw
    except (OSError, EOFError, zlib.error) as e:
        raise LabError(f"{path}: cannot be unpacked ({e}). Fetch it again: the file is torn.") from e
    return _listed(raw, path) if raw.lstrip().startswith(b"[") else numbered_rows(raw, path)


def _listed(raw: bytes, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, row) of a JSON list."""
    try:
        rows = json.loads(raw)
    except ValueError as e:
        raise LabError(f"{path}: not JSON ({e}). A list of objects is wanted, or JSONL, one object per line.") from e
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise LabError(f"{path}, row {number}: {type(row).__name__} found, a JSON object is wanted.")
        yield number, row


def _parse(row: dict[str, Any], format: RowFormat, field: str | None, category: str, default_id: str) -> Conversation:
    if format is RowFormat.auto:
        format = _detect(row, field)
    key = field if format is RowFormat.field else KEYS[format]
    if key is None or key not in row:
        raise LabError(f"no key {key!r} (format={format.value}); the row has {_keys(row)}.{_advice(row)}")
    system: str | None = None
    answers: list[str] = []
    if format is RowFormat.messages:
        system, turns, answers = _dialogue(_messages(row[key], "role", "content"))
    elif format is RowFormat.sharegpt:
        system, turns, answers = _dialogue(_messages(row[key], "from", "value"))
    elif format is RowFormat.turns:
        turns = _texts(row[key])
    else:
        turns = _texts([row[key]])
        # Alpaca's rows: what the instruction is about stands beside it
        if key == "instruction" and isinstance(row.get("input"), str) and row["input"].strip():
            turns = [f"{turns[0]}\n\n{row['input']}"]
    if system is None and isinstance(row.get("system"), str):
        system = row["system"]
    given = next((row[k] for k in IDS if isinstance(row.get(k), str | int)), default_id)
    named = row.get(category)
    return Conversation(
        id=str(given),
        turns=turns,
        system=system or None,
        answers=answers or None,
        category=str(named) if named else None,
    )


def _detect(row: dict[str, Any], field: str | None) -> RowFormat:
    for format, key in KEYS.items():
        if key in row:
            return format
    if field in row:
        return RowFormat.field
    known = ", ".join([*KEYS.values(), *([field] if field else [])])
    raise LabError(f"unknown format: none of {known} among the keys {_keys(row)}.{_advice(row)}")


def _keys(row: dict[str, Any]) -> str:
    return ", ".join(map(str, row)) or "nothing"


def _advice(row: dict[str, Any]) -> str:
    texts = [k for k, v in row.items() if isinstance(v, str) and k not in ("id", "category")]
    return f" Where one key holds the user turn, name it: format=field field={texts[0]}." if texts else ""


def _texts(value: Any) -> list[str]:
    """User turns of a `turns` list or a single field."""
    if not isinstance(value, list):
        raise LabError(f"a list of user turns is wanted, {type(value).__name__} found.")
    for number, text in enumerate(value, 1):
        if not isinstance(text, str):
            raise LabError(f"user turn {number} is {type(text).__name__}; text is wanted.")
        if not text.strip():
            raise LabError(f"user turn {number} is blank.")
    if not value:
        raise LabError("no user turn.")
    return list(value)


def _messages(value: Any, role_key: str, text_key: str) -> list[tuple[str, str]]:
    """(role, text) pairs; content given as a list of text parts is joined."""
    if not isinstance(value, list):
        raise LabError(f"a list of messages is wanted, {type(value).__name__} found.")
    pairs = []
    for number, message in enumerate(value, 1):
        if not isinstance(message, dict) or role_key not in message or text_key not in message:
            raise LabError(f"message {number} is no object with {role_key!r} and {text_key!r}: {str(message)[:80]}")
        role, text = message[role_key], message[text_key]
        if isinstance(text, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in text):
            text = "".join(str(part.get("text", "")) for part in text)
        if not isinstance(text, str):
            raise LabError(f"message {number}: {text_key} is {type(text).__name__}; only text can be used.")
        if not isinstance(role, str) or role not in ROLES:
            raise LabError(f"message {number} has role {str(role)[:40]!r}; known are {', '.join(ROLES)}.")
        pairs.append((ROLES[role], text))
    return pairs


def _dialogue(pairs: list[tuple[str, str]]) -> tuple[str | None, list[str], list[str]]:
    """(system, user turns, assistant turns) of [system] user assistant user assistant ..."""
    system = pairs[0][1] if pairs and pairs[0][0] == "system" else None
    start = 1 if system is not None else 0
    for number, (role, text) in enumerate(pairs[start:]):
        wanted = "assistant" if number % 2 else "user"
        if role != wanted:
            raise LabError(
                f"message {start + number + 1} is of role {role} where {wanted} is wanted: roles out of order. "
                "A conversation is an optional system message, then user and assistant in turn."
            )
        if role == "user" and not text.strip():
            raise LabError(f"message {start + number + 1} is a blank user turn.")
    turns = [text for role, text in pairs if role == "user"]
    if not turns:
        raise LabError("no user turn.")
    return system, turns, [text for role, text in pairs if role == "assistant"]
