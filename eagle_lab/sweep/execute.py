"""Runs the jobs of a sweep in child processes; what became of each point stands in its status.json.

Timed jobs run alone; the others side by side, `jobs` at a time. A point is done when its status.json says so for this
content; everything else is run again by the same command.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eagle_lab.config.stage import locked
from eagle_lab.sweep import failures
from eagle_lab.sweep.jobs import Estimate, Job, jobs, with_baselines, work
from eagle_lab.sweep.plan import check_plan, is_done, plan
from eagle_lab.sweep.points import Point
from eagle_lab.sweep.status import set_status, status

POLL_S = 0.1
KILLED_BY_HAND = 130


def execute(sweep: Path, points: list[Point]) -> list[Path]:
    """Runs what is not done; returns the directories of the failed points (their status.json says why).

    A failed point does not keep the others from running; kinds of failure that pass are tried again (`failures`).
    Ctrl-C or SIGTERM stops the running points, which may clean up, and then the sweep, as a KeyboardInterrupt.
    LabError when the directory holds another sweep (see `check_plan`), also for a dry run. A second launch of a sweep
    that runs waits for it.
    """
    config = points[0].config
    points = with_baselines(sweep, points)
    if config.dry_run:
        check_plan(sweep, points, config.replan)
        _show(jobs(points), config.jobs)
        return []
    sweep.mkdir(parents=True, exist_ok=True)
    with locked(sweep):
        check_plan(sweep, points, config.replan)
        todo = plan(sweep, points)
        _Executor(jobs(todo), len(todo), config.jobs).run()
    failed = [p.directory for p in points if status(p.directory)["state"] != "done"]
    if failed:
        print(f"{len(failed)} of {len(points)} points failed; the same command runs them again.", file=sys.stderr)
    return failed


def _show(planned: list[Job], side_by_side: int) -> None:
    if side_by_side > 1 and all(job.timed for job in planned):
        print(f"jobs={side_by_side} changes nothing: every point is timed, so runs alone (suite.timed=false does not).")
    for number, job in enumerate(planned, 1):
        how = "alone" if job.timed else "side by side"
        print(f"job {number} of {len(planned)}, {how}:")
        for point in job.points:
            done = " (done)" if is_done(point) else ""
            added = " (baseline, added)" if point.baseline else ""
            print(f"  {point.directory}{added}{done}")


class _Executor:
    def __init__(self, waiting: list[Job], total: int, side_by_side: int) -> None:
        self.waiting, self.total, self.side_by_side = waiting, total, side_by_side
        self.running: dict[subprocess.Popen[bytes], Job] = {}
        self.estimate = Estimate()
        self.started = 0

    def run(self) -> None:
        with _sigterm_as_interrupt():
            try:
                while self.waiting or self.running:
                    while self.waiting and self._may_start(self.waiting[0]):
                        self._start(self.waiting.pop(0))
                    ended = [child for child in self.running if child.poll() is not None]
                    for child in ended:
                        self._end(self.running.pop(child), child.returncode)
                    if not ended:
                        time.sleep(POLL_S)
            except KeyboardInterrupt:
                self._stop()
                raise

    def _may_start(self, job: Job) -> bool:
        if not self.running:
            return True
        baseline_first = any(j.plain != job.plain for j in self.running.values())
        alone = job.timed or any(j.timed for j in self.running.values())
        return not baseline_first and not alone and len(self.running) < self.side_by_side

    def _start(self, job: Job) -> None:
        left = self.estimate.remaining([job, *self.waiting])
        eta = "" if left is None else f" (about {_clock(left)} left)"
        for point in job.points:
            self.started += 1
            tries = int(status(point.directory).get("attempts", 0)) + 1
            set_status(point.directory, "planned", attempts=tries)
            print(f"point {min(self.started, self.total)} of {self.total}{eta}: {point.directory}", flush=True)
        directories = [str(p.directory) for p in job.points]
        self.running[subprocess.Popen([sys.executable, "-m", "eagle_lab", "point", *directories])] = job

    def _end(self, job: Job, code: int) -> None:
        if code == KILLED_BY_HAND:
            raise KeyboardInterrupt
        again = []
        for number, point in enumerate(job.points):
            found = status(point.directory)
            if found["state"] == "done":
                self.estimate.add(number == 0, work(point), float(found.get("seconds", 0)), not job.plain)
                continue
            if found["state"] == "planned" and number > 0:  # its process died before it came to this one
                again.append(point)
                continue
            if found["state"] != "failed":
                how = f"was killed by signal {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
                error = f"the point's process {how}"
                set_status(point.directory, "failed", error=error, exit_code=code, kind=failures.kind(error))
                found = status(point.directory)
            if found["attempts"] <= failures.retries(found["kind"]):
                print(f"once more ({found['kind']}): {point.directory}: {found['error']}", file=sys.stderr, flush=True)
                again.append(point)
            else:
                print(f"FAILED ({found['kind']}): {point.directory}: {found['error']}", file=sys.stderr, flush=True)
        if again:
            self.started -= len(again)
            self.waiting.insert(0, Job(again))

    def _stop(self) -> None:
        # a terminal's Ctrl-C reached the children too, a plain kill did not; a child heeds the first signal only
        for child in self.running:
            child.send_signal(signal.SIGTERM)
        for child, job in self.running.items():
            child.wait()
            for point in job.points:
                if status(point.directory)["state"] not in ("done", "failed", "planned"):
                    set_status(point.directory, "interrupted")


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes or 1} min"


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
