"""Runs named checks one after another and keeps each one's verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eagle_lab.config.errors import LabError


@dataclass(frozen=True)
class Verdict:
    check: str
    ok: bool
    found: str
    """What was found; for a failed check also what was wanted and how to fix it."""


def run_checks(checks: Mapping[str, Callable[[], str]]) -> list[Verdict]:
    """Each check returns what it found or raises LabError; a failed one does not keep the later ones from running."""
    verdicts = []
    for name, check in checks.items():
        try:
            verdicts.append(Verdict(name, True, check()))
        except LabError as e:
            verdicts.append(Verdict(name, False, str(e)))
    return verdicts
