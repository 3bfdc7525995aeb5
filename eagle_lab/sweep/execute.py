"""Runs the points of a sweep, each in a child process, and keeps what happened in status.json.

A point's config is frozen in its directory before the first one starts: edits to conf/ during a sweep change nothing.
A point is done when its status.json says so for this content; everything else is run again by the same command.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eagle_lab.config import load
from eagle_lab.config.content import content_digest
from eagle_lab.config.files import check_fields, read_json, write_json
from eagle_lab.config.provenance import provenance
from eagle_lab.sweep.points import Point


def status(directory: Path) -> dict[str, Any]:
    """What is known of a point: state new, planned, running, done, failed or interrupted, and facts."""
    file = directory / "status.json"
    if not file.exists():
        return {"state": "new"}
    found = read_json(file)
    check_fields(found, {"state": str}, str(file), f"Remove {directory} to run the point again.")
    return found


def set_status(directory: Path, state: str, **facts: Any) -> None:
    """Replaces the state; verb and digest are kept from the plan."""
    kept = {k: v for k, v in status(directory).items() if k in ("verb", "digest")}
    write_json(directory / "status.json", {"state": state, "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **kept, **facts})


def execute(points: list[Point]) -> list[Path]:
    """Runs what is not done; returns the directories of the failed points (their status.json says why).

    A failed point does not keep the others from running. Ctrl-C or SIGTERM stops the running point, which may clean
    up, and then the sweep, as a KeyboardInterrupt.
    """
    # overrides that resolve to the same content name the same directory
    points = list({point.directory: point for point in points}.values())
    todo = _plan(points)
    failed = []
    for number, point in enumerate(todo, 1):
        print(f"point {number} of {len(todo)}: {point.directory}", flush=True)
        code = _spawn(point.directory)
        if code != 0:
            failed.append(point.directory)
            print(f"FAILED: {point.directory}: {status(point.directory).get('error', 'see above')}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} of {len(points)} points failed; the same command runs them again.", file=sys.stderr)
    return failed


def _plan(points: list[Point]) -> list[Point]:
    """Freezes every point's config, writes plan.json and returns the points that are not done."""
    todo, planned = [], []
    for point in points:
        wanted = content_digest(point.verb, point.config)
        planned.append({"point": point.directory.name, "verb": point.verb, "digest": wanted})
        was = status(point.directory)
        if was["state"] == "done" and was.get("digest") == wanted:
            print(f"done already: {point.directory}", flush=True)
            continue
        point.directory.mkdir(parents=True, exist_ok=True)
        load.dump(point.config, point.directory / "config.yaml")
        set_status(point.directory, "planned", digest=wanted, verb=point.verb)
        todo.append(point)
    facts = {"argv": [*sys.argv[0].split(), *sys.argv[1:]], "points": planned, "provenance": provenance()}
    write_json(points[0].directory.parent / "plan.json", facts)
    return todo


def _spawn(directory: Path) -> int:
    """Runs one point in a child; its exit code, with the status put right when the child could not do it itself."""
    with _sigterm_as_interrupt():
        child = subprocess.Popen([sys.executable, "-m", "eagle_lab", "point", str(directory)])
        try:
            code = child.wait()
        except KeyboardInterrupt:
            # a terminal's Ctrl-C reached the child too, a plain kill did not; the child heeds the first signal only
            child.send_signal(signal.SIGTERM)
            child.wait()
            if status(directory)["state"] != "done":
                set_status(directory, "interrupted")
            raise
    if code == 130:
        raise KeyboardInterrupt
    if code != 0 and status(directory)["state"] != "failed":
        how = f"was killed by signal {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        set_status(directory, "failed", error=f"the point's process {how}", exit_code=code)
    return code


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
