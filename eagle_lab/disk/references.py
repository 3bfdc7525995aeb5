"""Which sweeps and runs use which stages, read from what they have written.

A point names its measurement, its proof and its head in rows.jsonl; a head names its dataset in its manifest's key, and
a dataset was made from the prompts and answers whose keys say the same as its own. A point that is not done names
nothing yet, so it keeps everything that bears the names in its config.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json, read_jsonl
from eagle_lab.disk.inventory import Entry, Outputs, User
from eagle_lab.sweep.status import status

HAND = "by hand"


class References:
    def __init__(self, outputs: Outputs) -> None:
        self.users: dict[Path, set[str]] = defaultdict(set)
        """Stage -> what uses it: "sweep NAME", "run VERB/NAME", or "by hand" for one that no sweep has made."""
        self.unknown: list[str] = []
        """Why there may be uses that are not known; while there are any, nothing counts as unused."""
        self._outputs = outputs
        self._parent = {inner.path: entry for entry in outputs.stages for inner in entry.beneath}
        self._points = {point for user in outputs.users for point in user.points}
        for user in outputs.users:
            for point in user.points:
                try:
                    for entry in self._of(user, point):
                        self._add(entry, f"{user.kind.removesuffix('s')} {user.name}")
                except (LabError, AttributeError) as e:
                    self.unknown.append(str(e) if isinstance(e, LabError) else f"{point}: not written by eagle-lab")
        for entry in outputs.stages:
            self._made_elsewhere(entry)
            if entry.state == "in use":
                self.unknown.append(f"{entry.path.relative_to(outputs.root)} is in use")
            elif entry.kind == "heads" and not entry.manifest:
                # its checkpoints are worth nothing without the dataset, which only its manifest will name
                for dataset in (e for e in outputs.stages if e.kind == "datasets"):
                    self._add(dataset, f"head {entry.path.name}")

    def _of(self, user: User, point: Path) -> Iterator[Entry]:
        if (point / "rows.jsonl").exists():
            for row in read_jsonl(point / "rows.jsonl"):
                yield from self._named_by(row)
        if (point / "status.json").exists() and status(point).get("state") != "done" and _planned(user, point):
            yield from self._wanted(point / "config.yaml")

    def _named_by(self, row: dict[str, Any]) -> Iterator[Entry]:
        """The measurement, proof and exported head of a row."""
        measurement = self._outputs.root / "measurements" / str(row.get("measurement"))
        for entry in self._outputs.stages:
            proof = entry.kind == "probes" and row.get("probe") and entry.manifest.get("digest") == row["probe"]
            if proof or entry.path == measurement or self._is_head(entry, row.get("head")):
                yield entry

    def _is_head(self, entry: Entry, given: Any) -> bool:
        """By its place below outputs, so that they may be moved."""
        return entry.kind == "export" and str(given).endswith(f"/{entry.path.relative_to(self._outputs.root)}")

    def _wanted(self, file: Path) -> Iterator[Entry]:
        """What bears the names of a frozen config: its runs would reuse it, or take it up."""
        try:
            config: Any = OmegaConf.to_container(OmegaConf.load(file))
            names = dict.fromkeys(("prompts", "answers", "datasets"), config["data"]["name"])
            names["heads"] = names["features"] = config["target"]["name"]
            spec, given = config["spec"], config["head"]
        except (OSError, YAMLError, OmegaConfBaseException, LookupError, TypeError) as e:
            raise LabError(f"{file}: cannot be read, so what this point needs is not known.") from e
        for entry in self._outputs.stages:
            served = entry.manifest.get("key", {}).get("spec") or {}
            if names.get(entry.kind) == entry.name or (served and (served == spec or served["kind"] == "none")):
                yield entry
                yield from entry.beneath
            elif self._is_head(entry, given):
                yield entry

    def _made_elsewhere(self, entry: Entry) -> None:
        """A stage that no sweep has made is its maker's; so is one of a sweep that lies outside of these outputs."""
        if not entry.manifest:
            return
        makers = made_by(entry)
        if not makers:
            self._add(entry, HAND)
        for maker in makers:
            if maker.is_dir() and maker.resolve() not in self._points:
                self._add(entry, f"sweep {maker.parent}")

    def _add(self, entry: Entry, user: str) -> None:
        if user in self.users[entry.path]:
            return
        self.users[entry.path].add(user)
        for needed in self._needs(entry):
            self._add(needed, user)

    def _needs(self, entry: Entry) -> Iterator[Entry]:
        """What it was made from, and what it lies in."""
        if entry.path in self._parent:
            yield self._parent[entry.path]
        if entry.kind == "measurements":
            yield from entry.beneath
        key = entry.manifest.get("key", {})
        for other in self._outputs.stages:
            if other.kind not in ("features", "datasets", "answers", "prompts") or not other.manifest:
                continue
            its = other.manifest.get("key", {})
            named = [*key.get("dataset", []), key.get("features")]
            trained_on = entry.kind in ("heads", "features") and other.manifest["digest"] in named
            if trained_on or (entry.kind == "datasets" and _made_from(key, other.kind, its)):
                yield other


def _made_from(dataset: dict[str, Any], kind: str, key: dict[str, Any]) -> bool:
    if kind == "answers":
        return all(key.get(name) == dataset.get(name) for name in ("target", "answers", "seed"))
    same = all(key.get(name) == dataset.get(name) for name in ("target", "suites"))
    return kind == "prompts" and same and key.get("source") in dataset.get("sources", [])


def counted(users: set[str]) -> str:
    """By how many of each kind: "2 sweeps, 1 run"; "by hand" where nothing else is known."""
    found = Counter(user.split()[0] for user in users - {HAND})
    parts = [f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in sorted(found.items(), reverse=True)]
    return ", ".join(parts) or "".join(users)


def made_by(entry: Entry) -> list[Path]:
    """The sweep's points whose process has made it; empty when a single run or somebody's script has."""
    argv = (entry.manifest.get("provenance") or {}).get("argv") or []
    return [Path(directory) for directory in argv[2:]] if argv[1:2] == ["point"] else []


def _planned(user: User, point: Path) -> bool:
    """A point that an earlier plan left unfinished and the present one does not want will not be run."""
    plan = user.path / "plan.json"
    return not plan.exists() or point.name in {p.get("point") for p in read_json(plan).get("points", [])}
