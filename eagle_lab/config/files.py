"""Writing without leaving half a file behind (write aside, then rename); reading with an error that names the place."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from eagle_lab.config.errors import LabError

WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    NoneType: "null",
    list[int]: "a list of whole numbers",
    list[str]: "a list of texts",
    list[dict]: "a list of objects",
}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it takes `path`'s place, on failure it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield aside
        os.replace(aside, path)
    except OSError as e:
        # a full disk shows at a write, which does not know its file
        if e.errno and e.filename is None:
            e.filename = str(path)
        raise
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


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; LabError naming the file when it holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise LabError(f"{path}: cannot be read ({e.strerror}).") from e
    except (ValueError, RecursionError) as e:  # brackets nested too deep
        raise LabError(f"{path}: not JSON ({e}).") from e
    if not isinstance(found, dict):
        raise LabError(f"{path}: {type(found).__name__} found, a JSON object is wanted.")
    return found


def check_fields(found: dict[str, Any], wanted: Mapping[str, Any], where: str, fix: str = "") -> None:
    """LabError naming every field that is missing or of another type than `wanted` says.

    wanted: name -> type, a list or dict with the type of its values, or a union; what admits None may be absent.
    """
    missing = [name for name, kind in wanted.items() if name not in found and not _fits(None, kind)]
    faults = [f"no value for {', '.join(missing)}"] if missing else []
    faults += [
        f"{name}={found[name]!r:.80}: {_said(kind)} is wanted"
        for name, kind in wanted.items()
        if name in found and not _fits(found[name], kind)
    ]
    if faults:
        raise LabError(f"{where}: {'; '.join(faults)}. {fix}".rstrip())


def _fits(value: Any, kind: Any) -> bool:
    types = _types(kind)
    return _all_fit([value], kind) if types is None else type(value) in types


def _all_fit(values: Collection[Any], kind: Any) -> bool:
    """Looks at the types that occur, not at each value: 10,000 rows hold two million numbers."""
    if (types := _types(kind)) is not None:
        return types.issuperset(map(type, values))
    if isinstance(kind, UnionType):
        return all(any(_fits(v, one) for one in get_args(kind)) for v in values)
    origin, (*_, inner) = get_origin(kind), get_args(kind)
    if not all(type(v) is origin for v in values):
        return False
    return _all_fit(list(chain.from_iterable(v if origin is list else v.values() for v in values)), inner)


@cache
def _types(kind: Any) -> frozenset[type] | None:
    """The types of JSON values that a kind admits; None for one that looks into lists or objects."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if any(get_origin(one) for one in kinds):
        return None
    return frozenset(kinds) | ({int} if float in kinds else frozenset())


def _said(kind: Any) -> str:
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return " or ".join(WORDS.get(one) or WORDS[get_origin(one)] for one in kinds)


def read_tensors(path: Path, fix: str, framework: str = "pt") -> dict[str, Any]:
    """Every tensor of a safetensors file ("pt": torch's, "np": numpy's); LabError for one that is missing or torn."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework) as f:
            return {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
    except OSError as e:
        raise LabError(f"{path}: cannot be read ({e.strerror or e}). {fix}") from e
    except SafetensorError as e:
        raise LabError(f"{path}: not a whole safetensors file ({e}). {fix}") from e


def append_jsonl(path: Path, row: dict[str, Any]) -> None:
    """One row, one write; a reader that finds a torn last line drops it (`read_jsonl(torn_tail=True)`)."""
    with path.open("a", encoding="utf-8") as f:
        f.write(json.dumps(row, ensure_ascii=False) + "\n")
        f.flush()


def read_jsonl(
    path: Path,
    wanted: Mapping[str, Any] | None = None,
    fix: str = "One JSON object per line is wanted.",
    *,
    torn_tail: bool = False,
) -> list[dict[str, Any]]:
    """Rows of a JSONL file; LabError names file and line of a bad row.

    wanted, fix: of every row, as check_fields has it.
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
    rows = []
    for number, row in numbered_rows(raw, path, fix):
        check_fields(row, wanted or {}, f"{path}, line {number}", fix)
        rows.append(row)
    return rows


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def numbered_rows(
    raw: bytes, path: Path, fix: str = "One JSON object per line is wanted."
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, row) of JSONL bytes; blank lines are skipped, LabError names file and line of a bad row."""
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_no_number)
            if rb"\ud" in line.lower():  # half a surrogate pair is text that nobody can write or tokenise
                json.dumps(row, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as e:
            raise LabError(f"{path}, line {number}: not JSON ({e}). {fix}") from e
        if not isinstance(row, dict):
            raise LabError(f"{path}, line {number}: {type(row).__name__} found, a JSON object is wanted. {fix}")
        yield number, row
