"""The child process of a sweep point: runs its verb and writes how it ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.stage import locked
from eagle_lab.sweep.execute import set_status, status

PR_SET_PDEATHSIG = 1


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


def run_point(directory: Path, body: Callable[[str], Callable[..., int]]) -> int:
    """Runs the point's verb in this process; its exit code. Errors go on to the caller after status.json has them.

    LabError when no sweep planned the directory.
    """
    stop = _Stop()
    _die_with_parent()
    verb = status(directory).get("verb")
    if verb is None:
        raise LabError(f"{directory}: no planned sweep point is there.")
    # an earlier sweep that was killed may still have its child at work here
    with locked(directory):
        set_status(directory, "running", pid=os.getpid())
        started = time.time()
        try:
            code = body(verb)(load.load_file(directory / "config.yaml"), directory)
        except BaseException as e:
            # Lightning makes a SystemExit of an interrupt, so the signal counts and not the exception
            if stop.asked:
                set_status(directory, "interrupted")
                raise KeyboardInterrupt from e
            set_status(directory, "failed", **_why(e))
            raise
        facts = {} if code == 0 else {"error": f"{verb} returned {code}"}
        seconds = round(time.time() - started, 1)
        set_status(directory, "failed" if code else "done", exit_code=code, seconds=seconds, **facts)
        return code


def _why(e: BaseException) -> dict[str, Any]:
    if isinstance(e, LabError):
        return {"error": str(e), "exit_code": e.exit_code}
    if isinstance(e, KeyboardInterrupt):
        return {"error": "interrupted", "exit_code": 130}
    return {"error": f"{type(e).__name__}: {e}", "traceback": traceback.format_exc(), "exit_code": 1}


def _die_with_parent() -> None:
    """A sweep that is killed outright takes its point along (as SIGTERM, so servers are stopped). Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
