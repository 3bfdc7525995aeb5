"""The wheel holds the package, its configs, suites and pins, and works where no checkout is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "-qq", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out)]
    subprocess.run([*build, str(ROOT)], check=True, timeout=120)
    (built,) = out.glob("*.whl")
    return built


def tree(folder: str) -> set[str]:
    """Files below a folder of the checkout, caches left out, as they are named in the wheel."""
    found = {p.relative_to(ROOT) for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    inside = Path() if folder == "eagle_lab" else Path("eagle_lab")
    return {str(inside / p) for p in found}


def test_it_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {folder: tree(folder) for folder in ("eagle_lab", "conf", "requirements")}
    assert {n for n in names if ".dist-info/" not in n} == set().union(*expected.values())
    assert len(expected["conf"]) > 40
    assert "eagle_lab/requirements/cpu-server.txt" in names
    assert "eagle_lab/suites/smoke.jsonl" in names
    assert {"eagle_lab/serve/cpu/sitecustomize.py", "eagle_lab/serve/cpu/sgl_kernel/__init__.py"} <= names


def test_it_names_its_command_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        of_info = {n.split(".dist-info/")[1]: n for n in archive.namelist() if ".dist-info/" in n}
        assert "eagle-lab = eagle_lab.__main__:main" in archive.read(of_info["entry_points.txt"]).decode()
        assert archive.read(of_info["licenses/LICENSE"]) == (ROOT / "LICENSE").read_bytes()


def test_it_composes_a_config_far_from_a_checkout(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere.mkdir()

    def python(*args: str) -> str:
        return subprocess.run(
            [sys.executable, *args], cwd=elsewhere, env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True, text=True, check=True, timeout=120,
        ).stdout  # fmt: skip

    where = python("-c", "from eagle_lab.config.paths import conf_dir; print(conf_dir())").strip()
    assert where == str(site / "eagle_lab/conf")
    composed = python("-m", "eagle_lab", "run", "target=tiny", "--cfg", "job")
    assert re.search(r"^target:\n  name: tiny$", composed, re.M)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.long
@pytest.mark.server
@pytest.mark.timeout(1800)
def test_the_documented_install_serves(wheel: Path, tmp_path: Path) -> None:
    """Runs the commands of docs/serving_cpu.md, word for word, in an empty folder that holds only the wheel."""
    page = (ROOT / "docs/serving_cpu.md").read_text(encoding="utf-8")
    script = re.search(r"^```sh\n(.*?)^```", page, re.M | re.S)
    assert script
    assert wheel.name in script[1]
    (tmp_path / wheel.name).write_bytes(wheel.read_bytes())
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    env = {**clean, "EAGLE_LAB_CACHE": str(tmp_path / "cache"), "WANDB_MODE": "offline"}
    subprocess.run(["bash", "-euc", script[1]], cwd=tmp_path, env=env, check=True, timeout=1700)
    reports = list((tmp_path / "outputs").rglob("report.md"))
    assert reports
    assert all("accept" in p.read_text(encoding="utf-8") for p in reports)
