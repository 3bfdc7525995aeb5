"""The whole chain by its command line, on the tiny target and real CPU servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class Lab:
    """Runs `eagle-lab` in a folder of its own, and kills what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs"
        root = Path(__file__).resolve().parents[2]
        self.environment = {**os.environ, "EAGLE_LAB_CACHE": str(folder / "cache"), "PYTHONPATH": str(root)}
        self.before: tuple[str, ...] = ()
        """Words before the command."""
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [*self.before, sys.executable, "-m", "eagle_lab", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(child)
        return child

    def run(self, *arguments: str, timeout: float = 800) -> tuple[int, str]:
        child = self.start(*arguments)
        text, _ = child.communicate(timeout=timeout)
        return child.returncode, text

    def kill_once(self, there: Callable[[], bool], *arguments: str) -> None:
        """Starts the command and kills it (-9, the whole process group) as soon as `there()` holds."""
        child = self.start(*arguments)
        while not there():
            assert child.poll() is None, child.communicate()[0]
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()

    def stop(self) -> None:
        for child in self.started:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.stop()
