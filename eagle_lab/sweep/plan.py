"""plan.json: which points a sweep consists of and by which code; a resume under another plan is refused, not mixed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from eagle_lab.config import load
from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json, write_json
from eagle_lab.config.provenance import code_digest, provenance
from eagle_lab.sweep.points import Point
from eagle_lab.sweep.status import set_status, status


def plan(sweep: Path, points: list[Point], replan: bool) -> list[Point]:
    """Freezes every point's config, writes plan.json and returns the points that are not done.

    LabError when the sweep was planned with other points or by other code, unless `replan`: then it is planned anew,
    and what is done with the same content is kept.
    """
    file = sweep / "plan.json"
    facts: dict[str, Any] = {
        "digest": digest(sorted(p.digest for p in points)),
        "code": code_digest(),
        "argv": [*sys.argv[0].split(), *sys.argv[1:]],
        "points": [
            {"point": p.directory.name, "verb": p.verb, "digest": p.digest, "baseline": p.baseline} for p in points
        ],
        "provenance": provenance(),
    }
    if file.exists() and not replan:
        _check_same(file, read_json(file), facts)
    todo = []
    for point in points:
        if is_done(point):
            print(f"done already: {point.directory}", flush=True)
            continue
        point.directory.mkdir(parents=True, exist_ok=True)
        load.dump(point.config, point.directory / "config.yaml")
        set_status(point.directory, "planned", digest=point.digest, verb=point.verb)
        todo.append(point)
    sweep.mkdir(parents=True, exist_ok=True)
    write_json(file, facts)
    return todo


def is_done(point: Point) -> bool:
    was = status(point.directory)
    return was["state"] == "done" and was.get("digest") == point.digest


def _check_same(file: Path, was: Any, now: dict[str, Any]) -> None:
    if not isinstance(was, dict) or not isinstance(was.get("points"), list):
        raise LabError(f"{file}: not a sweep's plan. Remove it, or give the sweep another name=.")
    differs = [what for what, key in (("other points", "digest"), ("other code", "code")) if was.get(key) != now[key]]
    if not differs:
        return
    before, after = ({p["digest"]: p["point"] for p in plan["points"]} for plan in (was, now))
    gone, new = ([names[d] for d in names if d not in other] for names, other in ((before, after), (after, before)))
    detail = "".join(
        f" {title}: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}."
        for title, names in (("Not any more", gone), ("New", new))
        if names
    )
    raise LabError(
        f"{file.parent} was planned with {' and '.join(differs)}.{detail} Its results are not mixed with others': give "
        "this sweep another name=..., or add replan=true to plan it anew (points of equal content that are done are "
        "kept, nothing is deleted)."
    )
