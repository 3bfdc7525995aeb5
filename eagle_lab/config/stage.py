"""A stage is a directory named by the digest of everything that decides its content.

`manifest.json` is written last, by rename: a directory with a manifest is done, one without is work in progress that
the next run takes up. The manifest has size and digest of every file beside it, which are compared before the stage is
reused: a full disk or an editor may have been at them since. A lock that the kernel drops when its holder dies keeps
two runs out of one directory.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from eagle_lab.config.digest import digest, file_digest, plain
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import check_fields, read_json, write_json
from eagle_lab.config.provenance import provenance

MANIFEST = "manifest.json"


@dataclass
class Stage:
    path: Path
    key: dict[str, Any]
    manifest: dict[str, Any] | None = None
    """The facts of a finished stage; None while there is work to do."""
    reused: bool = False
    """True when an earlier run had finished it."""
    started: float = field(default_factory=time.time)

    @property
    def digest(self) -> str:
        return digest(self.key)

    def finish(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Marks the stage done. Everything that the facts speak of must be on disk by now."""
        self.manifest = {
            **plain(facts),
            "digest": self.digest,
            "key": plain(self.key),
            "seconds": round(time.time() - self.started, 1),
            "files": {file.name: _now(file) for file in _lasting(self.path)},
            "provenance": provenance(),
        }
        write_json(self.path / MANIFEST, self.manifest)
        return self.manifest


@contextmanager
def stage(root: Path, kind: str, name: str, key: dict[str, Any]) -> Iterator[Stage]:
    """Opens root/kind/name-DIGEST under its lock.

    `key` holds all that decides the content (configs, digests of inputs, a format number). The caller works only if
    `manifest` is None and ends with `finish`.
    """
    path = stage_path(root, kind, name, key)
    path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        for torn in path.glob(".*.tmp"):  # what a killed run was writing; the lock is ours
            torn.unlink()
        work = Stage(path=path, key=plain(key))
        work.manifest = finished(path)
        if work.manifest is not None:
            work.reused = True
            if work.manifest["digest"] != work.digest:
                raise LabError(
                    f"{path / MANIFEST}: its digest {work.manifest['digest']} is not that of this configuration "
                    f"({work.digest}): the file was changed or copied. Remove {path} to redo the stage."
                )
        yield work


def stage_path(root: Path, kind: str, name: str, key: dict[str, Any]) -> Path:
    return root / kind / f"{name}-{digest(key)[:12]}"


def finished(path: Path) -> dict[str, Any] | None:
    """The manifest of the finished stage in `path`; None where none was finished.

    Raises LabError for a file that is no longer what the stage left there.
    """
    manifest = _manifest(path)
    for name, told in _changed(path, manifest):
        raise LabError(f"{path / name}: {told}. {_redo(path)}")
    return manifest


def changed(path: Path) -> Iterator[tuple[str, str]]:
    """(name, what was found and what was expected) of each file that is no longer what the stage in `path` left there.

    Every byte is read, at about the speed of loading it; a manifest from before there were digests names no file.
    """
    return _changed(path, _manifest(path))


def _changed(path: Path, manifest: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    for name, left in ((manifest or {}).get("files") or {}).items():
        if (now := _now(path / name)) != left:
            yield name, f"{_told(now)} found, {_told(left)} expected"


def _manifest(path: Path) -> dict[str, Any] | None:
    file = path / MANIFEST
    if not file.exists():
        return None
    manifest = read_json(file)
    check_fields(manifest, {"digest": str, "files": dict[str, dict] | None}, str(file), _redo(path))
    for name, left in (manifest.get("files") or {}).items():
        check_fields(left, {"size": int, "digest": str}, f"{file}, {name}", _redo(path))
    return manifest


def _redo(path: Path) -> str:
    return f"Remove {path} to redo the stage."


def _lasting(path: Path) -> list[Path]:
    """What a stage's facts speak of: the files in its own directory, without logs and what is hidden (locks, torn)."""
    files = (f for f in path.iterdir() if f.is_file() and not f.name.startswith(".") and f.suffix != ".log")
    return sorted(f for f in files if f.name != MANIFEST)


def _now(file: Path) -> dict[str, Any] | None:
    return {"size": file.stat().st_size, "digest": file_digest(file)} if file.is_file() else None


def _told(file: dict[str, Any] | None) -> str:
    return f"{file['size']} bytes with digest {file['digest']}" if file else "no file"


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Holds `path`/.lock, alone or `shared`; waits, and says so, while another process holds it otherwise."""
    wanted = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        with (path / ".lock").open("w") as f:
            try:
                fcntl.flock(f, wanted | fcntl.LOCK_NB)
            except OSError:
                print(f"waiting for another process that works in {path}", file=sys.stderr, flush=True)
                fcntl.flock(f, wanted)
            if _is(f, path / ".lock"):
                yield
                return
        # the one that we waited for was a gc, and has taken the directory away
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def unlocked(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Whether nobody holds `path`/.lock; if so, it is held within the block, alone or `shared`. Never waits.

    Unlike `locked` it leaves the file's time, which says when the directory was last worked in or read from.
    """
    wanted = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with (path / ".lock").open("r" if shared else "r+") as f:
        try:
            fcntl.flock(f, wanted | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free


def _is(f: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(f.fileno()), path.stat())
    except FileNotFoundError:
        return False
