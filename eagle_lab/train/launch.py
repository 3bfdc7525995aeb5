"""Several processes for one training: torchrun starts `eagle-lab rank DIR` in each, and the first answers by a file.

Lightning's own launcher would run the whole command line again in every process, a sweep and all.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError, Preempted
from eagle_lab.config.files import read_json, read_jsonl, write_json
from eagle_lab.track.tracker import Tracker

ASKED, ANSWERED = ".launch.json", ".answer.json"


def launched(devices: int, out: Path, asked: dict[str, Any], track: Tracker) -> dict[str, Any]:
    """What train_head returns, from `devices` processes that share every step; `asked` tells them what to train.

    Raises what the first process raised: LabError, or Preempted after a SIGTERM.
    """
    (out / ANSWERED).unlink(missing_ok=True)
    write_json(out / ASKED, asked)
    command = [sys.executable, "-m", "eagle_lab", "ranks", str(devices), str(out)]
    # a session of its own: Ctrl-C on the terminal comes here only, and is passed on as SIGTERM
    child = subprocess.Popen(command, start_new_session=True)
    asked_to_stop = False

    def stop(*_: Any) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True
        child.send_signal(signal.SIGTERM)

    with stopping_in_time(stop):
        try:
            while True:
                try:
                    code = child.wait()
                    break
                except KeyboardInterrupt:
                    stop()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        return _result(devices, code, out, asked_to_stop, track)


@contextmanager
def stopping_in_time(handler: Any = signal.SIG_DFL) -> Iterator[None]:
    """SIGTERM's handler within the block; the default leaves it to Lightning, which waits for the step in hand.

    After Preempted the handler that was there has its turn: a sweep's child makes a KeyboardInterrupt of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    except Preempted:
        if callable(previous):
            previous(signal.SIGTERM, None)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def _result(devices: int, code: int, out: Path, asked_to_stop: bool, track: Tracker) -> dict[str, Any]:
    answer = out / ANSWERED
    said = read_json(answer) if answer.exists() else {}
    for name in (ASKED, ANSWERED):
        (out / name).unlink(missing_ok=True)
    if (out / "metrics.jsonl").exists():  # the tracker lives in this process
        for row in read_jsonl(out / "metrics.jsonl", {"step": int}, f"Remove {out}/metrics.jsonl.", torn_tail=True):
            track.log({k: v for k, v in row.items() if isinstance(v, float)}, step=row["step"])
    if asked_to_stop or said.get("preempted"):
        raise Preempted(said.get("error") or "training: stopped. The same command goes on from the last checkpoint.")
    if "error" in said:
        raise LabError(said["error"])
    if code or "facts" not in said:
        raise LabError(f"training: its {devices} processes ended with code {code}. What they said stands above.")
    facts: dict[str, Any] = said["facts"]
    return facts


def torchrun(devices: int, out: Path) -> int:
    """Starts `eagle-lab rank out` that often; the exit code of the first that failed, without torchrun's traceback."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    words = ["--standalone", f"--nproc-per-node={devices}", "--module", "eagle_lab", "rank", str(out)]
    try:
        run(parse_args(words))
    except ChildFailedError as e:
        return int(e.get_first_failure()[1].exitcode)
    except SignalException:
        return 143
    return 0


def answered(out: Path, said: dict[str, Any]) -> None:
    """The first process's result or complaint."""
    if os.environ.get("RANK") == "0":
        write_json(out / ANSWERED, said)
