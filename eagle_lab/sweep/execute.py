"""Runs the points of a sweep, each in a child process, and keeps what happened in status.json.

A point's config is frozen in its directory before the first one starts: edits to conf/ during a sweep change nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle_lab.config import load
from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json, write_json
from eagle_lab.config.resolvers import NOT_CONTENT
from eagle_lab.sweep.points import Point


def content_digest(point: Point) -> str:
    """Digest of what decides the point's numbers: the verb and the config without names and places."""
    from eagle_lab.config.digest import plain

    config = {k: v for k, v in plain(point.config).items() if k not in NOT_CONTENT}
    return digest({"verb": point.verb, "config": config})


def status(directory: Path) -> dict[str, Any]:
    file = directory / "status.json"
    return read_json(file) if file.exists() else {"state": "new"}


def _set(directory: Path, state: str, **facts: Any) -> None:
    write_json(directory / "status.json", {"state": state, "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **facts})


def execute(points: list[Point]) -> list[Path]:
    """Runs what is not done; returns the directories of the failed points (their status.json says why)."""
    todo = []
    for point in points:
        wanted = content_digest(point)
        was = status(point.directory)
        if was["state"] == "done" and was.get("digest") == wanted:
            print(f"done already: {point.directory}", flush=True)
            continue
        point.directory.mkdir(parents=True, exist_ok=True)
        load.dump(point.config, point.directory / "config.yaml")
        _set(point.directory, "planned", digest=wanted, verb=point.verb)
        todo.append(point)
    failed = []
    for number, point in enumerate(todo, 1):
        print(f"point {number} of {len(todo)}: {point.directory}", flush=True)
        if _spawn(point.directory) != 0:
            failed.append(point.directory)
            print(f"FAILED: {point.directory}: {status(point.directory).get('error', 'see above')}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} of {len(points)} points failed; the same command runs them again.", file=sys.stderr)
    return failed


def _spawn(directory: Path) -> int:
    child = subprocess.Popen([sys.executable, "-m", "eagle_lab", "point", str(directory)])
    previous = signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    try:
        code = child.wait()
    except KeyboardInterrupt:
        # the terminal sent SIGINT to the child as well: let it stop its server and write its status
        child.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
    if code < 0 or status(directory)["state"] == "running":
        facts = {k: v for k, v in status(directory).items() if k in ("digest", "verb")}
        _set(directory, "failed", error=f"the process ended with code {code}", exit_code=code, **facts)
    if code == 130:
        raise KeyboardInterrupt
    return code


def run_point(directory: Path, body: Callable[[str], Callable[..., int]]) -> int:
    """The child: runs the point's verb in this process and writes how it ended."""
    kept = {k: v for k, v in status(directory).items() if k in ("digest", "verb")}
    if "verb" not in kept:
        raise LabError(f"{directory}: no planned sweep point is there.")
    _set(directory, "running", pid=os.getpid(), **kept)
    started = time.time()
    try:
        code = body(kept["verb"])(load.load_file(directory / "config.yaml"), directory)
    except KeyboardInterrupt:
        _set(directory, "interrupted", **kept)
        raise
    except LabError as e:
        _set(directory, "failed", error=str(e), exit_code=e.exit_code, **kept)
        raise
    except BaseException as e:
        _set(
            directory, "failed", error=f"{type(e).__name__}: {e}", traceback=traceback.format_exc(), exit_code=1, **kept
        )
        raise
    state = "done" if code == 0 else "failed"
    _set(directory, state, exit_code=code, seconds=round(time.time() - started, 1), **kept)
    return code
