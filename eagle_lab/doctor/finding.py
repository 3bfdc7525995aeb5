"""What a check says, and how several are run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from eagle_lab.config.errors import LabError


class Level(Enum):
    ok = "ok"
    warn = "warn"
    """It serves, and may cost something."""
    fail = "fail"
    skipped = "skipped"
    """It cannot be made here; `found` says why."""


class Unreadable(LabError):
    """A file of the head cannot be read at all: a failure of `files`, and of nothing else."""


class Skipped(Exception):
    """The check cannot be made here; the text says why."""


@dataclass(frozen=True)
class Finding:
    level: Level
    found: str
    wanted: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Verdict:
    check: str
    finding: Finding

    @property
    def level(self) -> Level:
        return self.finding.level

    def row(self) -> dict[str, Any]:
        """For machines: check, verdict, found, wanted, fix."""
        values = asdict(self.finding)
        return {"check": self.check, "verdict": values.pop("level").value, **values}


def ok(found: str) -> Finding:
    return Finding(Level.ok, found)


def warn(found: str, wanted: str, fix: str) -> Finding:
    return Finding(Level.warn, found, wanted, fix)


def fail(found: str, wanted: str, fix: str) -> Finding:
    return Finding(Level.fail, found, wanted, fix)
