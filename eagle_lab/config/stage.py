"""A stage is a directory named by the digest of everything that decides its content.

`manifest.json` is written last, by rename: a directory with a manifest is done, one without is work in progress that
the next run takes up. A lock that the kernel drops when its holder dies keeps two runs out of one directory.
"""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle_lab.config.digest import digest, plain
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json, write_json
from eagle_lab.config.provenance import provenance


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
            "provenance": provenance(),
        }
        write_json(self.path / "manifest.json", self.manifest)
        return self.manifest


@contextmanager
def stage(root: Path, kind: str, name: str, key: dict[str, Any]) -> Iterator[Stage]:
    """Opens root/kind/name-DIGEST under its lock.

    `key` holds all that decides the content (configs, digests of inputs, a format number). The caller works only if
    `manifest` is None and ends with `finish`.
    """
    path = root / kind / f"{name}-{digest(key)[:12]}"
    path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        for torn in path.glob(".*.tmp"):  # what a killed run was writing; the lock is ours
            torn.unlink()
        work = Stage(path=path, key=plain(key))
        file = path / "manifest.json"
        if file.exists():
            work.manifest = read_json(file)
            work.reused = True
            if not isinstance(work.manifest, dict):
                raise LabError(f"{file}: not a manifest. Remove {path} to redo the stage.")
            if work.manifest.get("digest") != work.digest:
                raise LabError(
                    f"{file}: its digest {work.manifest.get('digest')} is not that of this configuration "
                    f"({work.digest}): the file was changed or copied. Remove {path} to redo the stage."
                )
        yield work


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Holds `path`/.lock, alone or `shared`; waits, and says so, while another process holds it otherwise."""
    wanted = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with (path / ".lock").open("w") as f:
        try:
            fcntl.flock(f, wanted | fcntl.LOCK_NB)
        except OSError:
            print(f"waiting for another process that works in {path}", file=sys.stderr, flush=True)
            fcntl.flock(f, wanted)
        yield
