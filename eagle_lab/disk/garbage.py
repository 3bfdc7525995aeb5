"""What may go, why, and its removal.

Nothing that a sweep or run uses, that is in use now, or that we do not know goes. A directory is first renamed, in its
own folder (outputs may be spread over file systems), and then deleted: a gc that is killed in between leaves no half
stage that would count as done, and the next one deletes the rest.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from eagle_lab.config.stage import unlocked
from eagle_lab.disk.inventory import TORN, Entry, Outputs, inside, weigh
from eagle_lab.disk.references import References, made_by

AGE_S = 24 * 3600.0
"""What was touched since may be a run's that is between two stages, or that its user is about to take up again."""
LOG_BYTES = 10 * 2**20
"""Logs of finished servers above this size go: a line per decoding step adds up, and the rows have the numbers."""


@dataclass(frozen=True)
class Item:
    path: Path
    why: str
    bytes: int
    lock: Path | None = None
    """The directory whose lock must be free."""
    used: float = 0.0
    """When that directory was last opened, as listed."""


def garbage(outputs: Outputs, references: References, cache: Path) -> list[Item]:
    """What may go, in the order of removal."""
    left = [Item(path, "left by a gc that was killed", weigh([path])[0]) for path in outputs.left]
    return [*left, *_Rules(references).of(outputs), *_torn(outputs, cache), *_partial(cache)]


def remove(item: Item) -> bool:
    """False when it stays: somebody has opened the stage since it was listed, or is at work there."""
    if not item.path.exists():
        return False
    with unlocked(item.lock) if item.lock else nullcontext(True) as free:
        if not free or (item.lock and _used(item.lock) != item.used):
            return False
        if not item.path.is_dir():
            item.path.unlink()
            return True
        aside = item.path
        # hidden already: nobody takes it for anything
        if not aside.name.startswith("."):
            aside = aside.with_name(f".{aside.name}.trash")
            os.replace(item.path, aside)
        shutil.rmtree(aside)
    return True


class _Rules:
    def __init__(self, references: References) -> None:
        self.references = references
        self.old = time.time() - AGE_S

    def of(self, outputs: Outputs) -> Iterator[Item]:
        going: set[Path] = set()
        for entry in outputs.stages:
            if entry.path.parent.parent in going:
                continue
            why = self._why(entry)
            if why:
                going.add(entry.path)
                yield Item(entry.path, why, entry.whole, entry.path, entry.used)
            elif entry.state in ("done", "in progress"):
                yield from (Item(p, why, weigh([p])[0], entry.path, entry.used) for p, why in _parts(entry))
        for folder in (folder for user in outputs.users for folder in user.folders):
            lock = folder if (folder / ".lock").exists() else None
            for path, why in _synced(folder):
                yield Item(path, why, weigh([path])[0], lock, _used(lock) if lock else 0.0)

    def _why(self, entry: Entry) -> str:
        """Why the whole stage may go; empty when it stays."""
        if entry.foreign or self.references.users[entry.path] or not all(self._why(e) for e in entry.beneath):
            return ""
        if entry.state == "in progress" and entry.written < self.old:
            since = time.strftime("%Y-%m-%d", time.localtime(entry.written))
            return f"in progress, but untouched since {since}; the command that began it would go on with it"
        if entry.state != "done" or self.references.unknown or entry.used >= self.old:
            return ""
        sweeps = sorted({point.parent.name for point in made_by(entry)})
        return f"made by sweep {', '.join(sweeps)}; no sweep or run uses it any more"


def _parts(entry: Entry) -> Iterator[tuple[Path, str]]:
    """What of a stage that stays is of no use."""
    for path in inside(entry.path):
        if TORN.fullmatch(path.name):
            yield path, "torn: its writer was killed"
    if entry.state != "done":
        return
    if (entry.path / "head.safetensors").exists():
        for path in (entry.path / "checkpoints").glob("*.ckpt"):
            yield path, "checkpoint of a finished head (head.safetensors stays)"
    log = entry.path / "server.log"
    if log.exists() and log.stat().st_size > LOG_BYTES:
        yield log, f"server log of a finished stage, over {LOG_BYTES // 2**20} MiB"
    yield from _synced(entry.path)


def _synced(directory: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(directory.glob("wandb/offline-run-*")):
        if any(path.glob("*.wandb.synced")):
            yield path, "W&B run that `wandb sync` has uploaded"


def _torn(outputs: Outputs, cache: Path) -> Iterator[Item]:
    """Torn files outside of stages, where no lock tells whether their writer still lives: by age."""
    folders = [folder for user in outputs.users for folder in user.folders]
    for path in (path for folder in [*folders, cache] for path in inside(folder)):
        if TORN.fullmatch(path.name) and path.is_file() and path.stat().st_mtime < time.time() - AGE_S:
            yield Item(path, "torn: its writer was killed", weigh([path])[0])


def _partial(cache: Path) -> Iterator[Item]:
    targets = cache / "targets"
    for path in targets.glob(".*.partial"):
        with unlocked(targets, shared=True) as free:
            if free:
                yield Item(path, "torn: its converter was killed", weigh([path])[0], targets, _used(targets))


def _used(directory: Path) -> float:
    return (directory / ".lock").stat().st_mtime
