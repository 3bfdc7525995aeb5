"""The child process of a sweep: runs the points of one job and writes how each ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.stage import locked
from eagle_lab.sweep import failures
from eagle_lab.sweep.status import set_status, status

PR_SET_PDEATHSIG = 1

Body = Callable[[str], Callable[..., int]]
"""Verb -> its `run(config, out) -> exit code`."""


class _Stop:
    """Turns the first SIGINT or SIGTERM into a KeyboardInterrupt and swallows the later ones.

    A second signal would break off the cleanup that stops the point's server.
    """

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGINT, self)
        signal.signal(signal.SIGTERM, self)

    def __call__(self, *_: Any) -> None:
        if not self.asked:
            self.asked = True
            raise KeyboardInterrupt


def run_job(directories: list[Path], body: Body, sharing: Callable[[], AbstractContextManager[None]]) -> int:
    """Runs the points' verbs in this process, one after another within `sharing`; the worst of their exit codes.

    An error ends its point only; every status.json has its own. LabError when no sweep planned a directory.
    """
    stop = _Stop()
    _die_with_parent()
    codes = []
    with sharing():
        for directory in directories:
            if status(directory).get("verb") is None:
                raise LabError(f"{directory}: no planned sweep point is there.")
            # an earlier sweep that was killed may still have its child at work here
            with locked(directory):
                codes.append(_run_point(directory, body, stop))
    return max(codes)


def _run_point(directory: Path, body: Body, stop: _Stop) -> int:
    verb = str(status(directory)["verb"])
    set_status(directory, "running", pid=os.getpid())
    started = time.time()
    try:
        code = body(verb)(load.load_file(directory / "config.yaml"), directory)
    except BaseException as e:
        # Lightning makes a SystemExit of an interrupt, so the signal counts and not the exception
        if stop.asked:
            set_status(directory, "interrupted")
            raise KeyboardInterrupt from e
        facts = _why(e)
        set_status(directory, "failed", **facts)
        return int(facts["exit_code"])
    if code == 0:
        set_status(directory, "done", exit_code=0, seconds=round(time.time() - started, 1))
    else:
        set_status(directory, "failed", error=f"{verb} returned {code}", exit_code=code, kind=failures.OTHER)
    return code


def _why(e: BaseException) -> dict[str, Any]:
    if isinstance(e, LabError):
        return {"error": str(e), "exit_code": e.exit_code, "kind": failures.kind(str(e))}
    error = f"{type(e).__name__}: {e}"
    found = failures.kind(error)
    # what is no known kind and no message of ours is a bug
    name = "bug" if found == failures.OTHER else found
    return {"error": error, "traceback": traceback.format_exc(), "exit_code": 1, "kind": name}


def _die_with_parent() -> None:
    """A sweep that is killed outright takes its jobs along (as SIGTERM, so servers are stopped). Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
