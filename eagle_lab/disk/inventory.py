"""What lies in outputs and cache: stages with their state and size, sweeps and runs, and what is not ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json
from eagle_lab.config.stage import unlocked
from eagle_lab.sweep.status import status

FILES: dict[str, set[str]] = {
    "prompts": {"attempts.jsonl"},
    "answers": {"answers.jsonl"},
    "datasets": {"rows.jsonl", "tokens.safetensors", "server.log"},
    "features": {"features-*.safetensors"},
    "heads": {"head.safetensors", "sample.safetensors", "metrics.jsonl", "checkpoints", "wandb", "export"},
    "export": {"config.json", "model.safetensors", "export.json"},
    "probes": {"proof.json", "server.log"},
    "measurements": {"rows.jsonl", "requests.jsonl", "lone_prompts.json", "server_info.json", "server.log", "replay"},
    "replay": set(),
}
"""Kind of stage -> what it writes beside manifest and lock (patterns). Anything else was put there by somebody else."""
BENEATH = {"heads": "export", "measurements": "replay"}
"""Kind -> the kind of the stages inside it."""
USERS = {"sweeps": 1, "plans": 1, "runs": 2}
"""Folder of what uses stages -> depth of its entries (runs/VERB/NAME)."""
CACHED = ("targets", "suites")
STAGE = re.compile(r".+-[0-9a-f]{12}")
LEFT = re.compile(r"\.(.+-[0-9a-f]{12}|offline-run-.+)\.trash")
"""What a gc had moved aside to delete when it was killed."""
TORN = re.compile(r"\..+\.\d+\.tmp")
"""What a writer had not yet moved to its place when it was killed (`files.replacing`)."""


@dataclass
class Entry:
    """A stage, or something cached."""

    kind: str
    path: Path
    state: str
    """done, in progress, in use (its lock is held), or torn (its manifest is none, or another's)."""
    bytes: int
    """On disk, without the stages inside it."""
    written: float
    """When it was finished; in progress: its newest file."""
    used: float
    """When it was last opened, by a run that made or reused it."""
    manifest: dict[str, Any]
    foreign: list[Path]
    beneath: list[Entry] = field(default_factory=list)

    @property
    def whole(self) -> int:
        """Bytes, with the stages inside it."""
        return self.bytes + sum(entry.whole for entry in self.beneath)

    @property
    def name(self) -> str:
        """The name that its config gave, without the digest."""
        return self.path.name.rpartition("-")[0]

    @property
    def label(self) -> str:
        """Its directory; below that of the stage that it lies in, if it lies in one."""
        nested = self.path.parent.name in BENEATH.values()
        return f"{self.path.parents[1].name}/{self.path.parent.name}/{self.path.name}" if nested else self.path.name


@dataclass
class User:
    """A sweep or a run."""

    kind: str
    path: Path
    bytes: int
    written: float
    points: list[Path]
    """Its directories with a status.json or rows.jsonl."""

    @property
    def folders(self) -> list[Path]:
        return sorted({self.path, *self.points})

    @property
    def name(self) -> str:
        return self.path.name if USERS[self.kind] == 1 else f"{self.path.parent.name}/{self.path.name}"

    @property
    def state(self) -> str:
        """How many of its points are done; of a run, whether it has left rows."""
        if self.kind == "runs":
            return "rows" if self.points else "no rows"
        done = sum(_says_done(point) for point in self.points)
        return f"{done} of {len(self.points)} done"


@dataclass
class Outputs:
    root: Path
    stages: list[Entry]
    """Each one before those inside it."""
    users: list[User]
    foreign: list[Path]
    left: list[Path]
    """What a killed gc has left."""


def outputs(root: Path) -> Outputs:
    """Looks at paths.outputs; changes nothing. LabError when it is no directory."""
    if not root.is_dir():
        raise LabError(f"paths.outputs={root}: no such directory. Give the one that runs were written to.")
    root = root.resolve()
    stages, foreign, left = [], [], []
    for kind in (k for k in FILES if k not in BENEATH.values()):
        found, others, asides = _stages(kind, root / kind)
        stages += [entry for stage in found for entry in (stage, *stage.beneath)]
        foreign += others
        left += asides
    users = list(_users(root))
    known = {*FILES, *USERS} - set(BENEATH.values())
    foreign += [path for path in inside(root) if path.name not in known]
    foreign += [path for entry in stages for path in entry.foreign]
    folders = [entry.path for entry in stages] + [folder for user in users for folder in user.folders]
    left += [path for folder in folders for path in inside(folder / "wandb") if LEFT.fullmatch(path.name)]
    return Outputs(root, stages, users, sorted(foreign), sorted(left))


def cached(root: Path) -> list[Entry]:
    """Converted and generated targets, and fetched suites, below paths.cache."""
    entries = []
    for kind in CACHED:
        for path in inside(root / kind):
            if path.name.startswith("."):
                continue
            size, newest = weigh([path])
            entries.append(Entry(kind, path, "done", size, newest, newest, {}, []))
    return entries


def inside(folder: Path) -> list[Path]:
    """What a folder holds, in order; nothing where there is none."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def weigh(paths: Iterable[Path]) -> tuple[int, float]:
    """(bytes on disk, newest time) of files and whole folders; links are not followed."""
    size, newest = 0, 0.0
    for path in paths:
        try:
            stat = path.lstat()
            within = [] if path.is_symlink() or not path.is_dir() else list(path.iterdir())
        except FileNotFoundError:  # a run at work has removed it since
            continue
        size, newest = size + stat.st_blocks * 512, max(newest, stat.st_mtime)
        if within:
            more, latest = weigh(within)
            size, newest = size + more, max(newest, latest)
    return size, newest


def _stages(kind: str, folder: Path) -> tuple[list[Entry], list[Path], list[Path]]:
    """The stages of a folder, what else is there, and what a killed gc has left there."""
    found, foreign, left = [], [], []
    for path in inside(folder):
        if LEFT.fullmatch(path.name):
            left.append(path)
        elif path.is_symlink() or not STAGE.fullmatch(path.name) or not (path / ".lock").is_file():
            foreign.append(path)
        else:
            found.append(_stage(kind, path, left))
    return found, foreign, left


def _stage(kind: str, path: Path, left: list[Path]) -> Entry:
    nested = BENEATH.get(kind)
    own = [p for p in inside(path) if p.name != nested]
    known = (".lock", "manifest.json", *FILES[kind])
    foreign = [p for p in own if not any(fnmatch(p.name, k) for k in known) and not TORN.fullmatch(p.name)]
    foreign += [p for p in inside(path / "checkpoints") if p.suffix != ".ckpt"]
    size, newest = weigh(own)
    folders = [path, path / nested] if nested else [path]
    size += sum(folder.lstat().st_blocks * 512 for folder in folders if folder.is_dir())
    state, manifest = _state(path)
    written = (path / "manifest.json").stat().st_mtime if manifest else newest
    entry = Entry(kind, path, state, size, written, (path / ".lock").stat().st_mtime, manifest, foreign)
    if nested:
        entry.beneath, others, asides = _stages(nested, path / nested)
        foreign += others
        left += asides
    return entry


def _state(path: Path) -> tuple[str, dict[str, Any]]:
    with unlocked(path, shared=True) as free:
        file = path / "manifest.json"
        try:
            manifest = read_json(file) if file.exists() else {}
            torn = file.exists() and not str(manifest.get("digest")).startswith(path.name.rpartition("-")[2])
        except LabError:
            manifest, torn = {}, True
        if not free:
            return "in use", {} if torn else manifest
        if torn:
            return "torn", {}
        return ("done" if file.exists() else "in progress"), manifest


def _users(root: Path) -> Iterator[User]:
    marks = ("status.json", "rows.jsonl")
    for kind, depth in USERS.items():
        for path in sorted((root / kind).glob("/".join("*" * depth))):
            if not path.is_dir() or path.name.startswith("."):
                continue
            size, newest = weigh([path])
            plan = path / "plan.json"
            points = [p for p in [path, *inside(path)] if any((p / mark).exists() for mark in marks)]
            yield User(kind, path, size, plan.stat().st_mtime if plan.exists() else newest, points)


def _says_done(point: Path) -> bool:
    try:
        return status(point).get("state") == "done"
    except (LabError, AttributeError):
        return False
