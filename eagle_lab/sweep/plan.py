"""plan.json: which points a sweep consists of and by which code; a resume under another plan is refused, not mixed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from eagle_lab.config import load
from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import check_fields, read_json, write_json
from eagle_lab.config.provenance import code_digest, provenance
from eagle_lab.sweep.points import Point
from eagle_lab.sweep.status import set_status, status

FILE = "plan.json"
NO_PLAN = "That is no plan of a sweep: remove it, or give the sweep another name=..."


def plan(sweep: Path, points: list[Point]) -> list[Point]:
    """Freezes every point's config, writes plan.json and returns the points that are not done."""
    facts: dict[str, Any] = {
        **_identity(points),
        "argv": [*sys.argv[0].split(), *sys.argv[1:]],
        "provenance": provenance(),
    }
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
    write_json(sweep / FILE, facts)
    return todo


def is_done(point: Point) -> bool:
    was = status(point.directory)
    return was["state"] == "done" and was.get("digest") == point.digest


def _identity(points: list[Point]) -> dict[str, Any]:
    """What makes a sweep the same one when it is launched again."""
    return {
        "digest": digest(sorted(p.digest for p in points)),
        "code": code_digest(),
        "points": [
            {
                **{"point": p.directory.name, "verb": p.verb, "digest": p.digest, "baseline": p.baseline},
                **({"trained_with": p.trained_with} if p.trained_with else {}),
            }
            for p in points
        ],
    }


def check_plan(sweep: Path, points: list[Point], replan: bool) -> None:
    """LabError when the sweep was planned for another verb, or with other points or by other code unless `replan`.

    `replan` plans it anew, and what is done with the same content is kept.
    """
    file = sweep / FILE
    if not file.exists():
        return
    was, now = read_json(file), _identity(points)
    wanted = {"point": str, "verb": str, "digest": str}
    check_fields(was, {"points": list[dict]}, str(file), NO_PLAN)
    for point in was["points"]:
        check_fields(point, wanted, str(file), NO_PLAN)
    verbs, planned = ({p["verb"] for p in plan["points"]} for plan in (now, was))
    if verbs.isdisjoint(planned):
        raise LabError(
            f"{sweep} holds a sweep of {' and '.join(sorted(planned))}, this is one of {' and '.join(sorted(verbs))}: "
            "give it a name=... of its own."
        )
    if replan:
        return
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
        f"{sweep} was planned with {' and '.join(differs)}.{detail} Its results are not mixed with others': give "
        "this sweep another name=..., or add replan=true to plan it anew (points of equal content that are done are "
        "kept, nothing is deleted)."
    )
