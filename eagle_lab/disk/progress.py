"""How far a sweep is: what became of each point."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json
from eagle_lab.config.stage import unlocked
from eagle_lab.disk.inventory import inside
from eagle_lab.sweep.status import status


@dataclass(frozen=True)
class Progress:
    point: str
    state: str
    """As in status.json; "killed" for a running one whose process is gone."""
    failure: str
    """Kind of failure, for a failed one."""
    seconds: float | None
    """What it took, for a finished one."""
    at: str
    """When it came to this state."""
    error: str
    """First line."""


def progress(sweep: Path) -> list[Progress]:
    """The points in the order of the plan, then those that an earlier plan has left. LabError where no sweep is."""
    plan = sweep / "plan.json"
    if not plan.exists():
        raise LabError(f"results={sweep}: no sweep is there (no plan.json). `eagle-lab ls` lists the sweeps.")
    planned = read_json(plan)
    try:
        names = [str(point["point"]) for point in planned["points"]]
    except (LookupError, TypeError) as e:
        raise LabError(f"{plan}: not a sweep's plan. Run the sweep's command again, with replan=true.") from e
    others = [p.name for p in inside(sweep) if (p / "status.json").exists() and p.name not in names]
    return [_of(sweep / name, "") for name in names] + [_of(sweep / name, " (not planned any more)") for name in others]


def _of(point: Path, note: str) -> Progress:
    found = status(point)
    state = str(found.get("state"))
    if state == "running" and not _locked(point):
        state = "killed"
    lines = str(found.get("error") or "").splitlines()
    return Progress(
        point=point.name,
        state=state + note,
        failure=str(found.get("kind") or ""),
        seconds=found.get("seconds"),
        at=str(found.get("at") or "")[:16].replace("T", " "),
        error=lines[0] if lines else "",
    )


def _locked(point: Path) -> bool:
    if not (point / ".lock").exists():
        return False
    with unlocked(point, shared=True) as free:
        return not free
