"""Runs named checks one after another and keeps each one's verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eagle_lab.config.errors import LabError


class Skipped(Exception):
    """The check cannot be made here; the text says why."""


@dataclass(frozen=True)
class Verdict:
    check: str
    ok: bool | None
    """None when the check was skipped."""
    found: str
    """What was found, or why it was skipped; for a failed check also what was wanted and how to fix it."""


def run_checks(checks: Mapping[str, Callable[[], str]]) -> list[Verdict]:
    """Each check returns what it found, or raises LabError or Skipped; it does not keep the later ones from running."""
    verdicts = []
    for name, check in checks.items():
        try:
            verdicts.append(Verdict(name, True, check()))
        except LabError as e:
            verdicts.append(Verdict(name, False, str(e)))
        except Skipped as e:
            verdicts.append(Verdict(name, None, str(e)))
    return verdicts
