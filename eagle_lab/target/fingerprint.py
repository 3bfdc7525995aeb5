"""The digest of a model directory: what its weights, tokenizer and configs are, wherever they lie."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from eagle_lab.config.digest import digest, file_digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json, write_json
from eagle_lab.config.stage import locked

# safetensors and tokenizer files, and the configs beside them: rope, eos and chat template change every number too
CONTENT = frozenset({".safetensors", ".bin", ".json", ".jinja", ".model", ".txt", ".tiktoken"})
MADE = "eagle_lab.json"
"""Says how a directory in the cache was made; holds versions and argv, so it is no content."""


def content_files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.iterdir() if p.suffix in CONTENT and p.name != MADE and p.is_file())


def directory_digest(directory: Path, cache: Path) -> str:
    """16 hex digits over the names and bytes of a model directory's files; equal copies have equal digests."""
    files = content_files(directory)
    return digest(dict(zip([p.name for p in files], memoised(files, cache), strict=True)))


def _memo(file: Path) -> dict[str, list[Any]]:
    """Path -> [size, mtime, digest]. It only saves time: what cannot be read is hashed and written anew."""
    try:
        found = read_json(file)
    except LabError:
        return {}
    shape = [int, int, str]
    return {path: known for path, known in found.items() if isinstance(known, list) and [*map(type, known)] == shape}


def memoised(files: list[Path], cache: Path) -> list[str]:
    """The files' digests. One hashed before is known by its path, size and mtime, so that big weights are read once."""
    cache.mkdir(parents=True, exist_ok=True)
    memo_file = cache / "digests.json"
    with locked(cache):
        memo = _memo(memo_file)
        seen = {}
        for path in (p.resolve() for p in files):
            stat = path.stat()
            facts = [stat.st_size, stat.st_mtime_ns]
            known = memo.get(str(path))
            if known is None or known[:2] != facts:
                if stat.st_size > 2**31:
                    print(f"hashing {path} ({stat.st_size / 2**30:.0f} GiB), once", file=sys.stderr)  # noqa: T201
                known = [*facts, file_digest(path)]
            seen[str(path)] = known
        if any(memo.get(path) != known for path, known in seen.items()):
            write_json(memo_file, {**memo, **seen})
    return [seen[str(p.resolve())][2] for p in files]
