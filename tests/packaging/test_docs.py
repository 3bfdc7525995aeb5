"""What README.md and docs/ say about the checkout is what the checkout holds."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from eagle_lab.config.digest import digest
from tests.doc_figures import DRAWN, FIGURES, rows_of, stated
from tests.doc_tables import renewed

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
# written by runs, so git does not know it
WRITTEN = {"outputs/"}


def on_disk() -> set[str]:
    """Every file and folder (with a closing slash) that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    found = set()
    for name in listed:
        if (ROOT / name).exists():
            parents = [f"{p}/" for p in Path(name).parents if p != Path()]
            found |= {name, *parents}
    return found


def tree() -> list[str]:
    """Paths of the block under `## Tree`: two blanks of indentation per level, a folder ends in /, a text follows."""
    text = README.read_text(encoding="utf-8")
    block = re.search(r"^## Tree\n.*?^```\w*\n(.*?)^```", text, re.M | re.S)
    assert block, "README.md has no fenced block under '## Tree'"
    paths: list[str] = []
    above: list[str] = []
    for line in block[1].splitlines():
        if not line.strip():
            continue
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        assert depth <= len(above), f"README.md, tree: {line!r} is indented below a file"
        above = above[:depth]
        paths.append("".join(above) + name)
        if name.endswith("/"):
            above.append(name)
    return paths


def test_everything_in_the_tree_is_on_disk() -> None:
    named = tree()
    assert len(named) == len(set(named))
    assert set(named) - on_disk() - WRITTEN == set()


def test_every_folder_is_in_the_tree() -> None:
    """All at the top, and all inside any folder that the tree opens."""
    named, disk = set(tree()), on_disk()
    opened = {""} | {str(Path(p).parent) + "/" for p in named if "/" in p.rstrip("/")}
    assert "eagle_lab/" in opened, "the tree shows the packages of eagle_lab/"
    folders = {p for p in disk if p.endswith("/")}
    due = {p for p in folders if (str(Path(p).parent) + "/" if "/" in p.rstrip("/") else "") in opened}
    assert due - named == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_extras_and_commands_that_the_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {e for found in re.findall(r"(?:eagle-lab|\.whl|\"\.|'\.)\[([\w,]+)\]", text) for e in found.split(",")}
    assert named <= set(extras)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_ci_runs_the_test_command_of_the_readme() -> None:
    run = ROOT / ".ci/run"
    assert run.stat().st_mode & 0o111
    assert run.read_text().splitlines()[-1] == "make test"
    assert "make test" in README.read_text(encoding="utf-8")
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert "- run: bash .ci/run" in workflow
    assert workflow.count("continue-on-error: true") == 1


def test_the_licence_is_the_whole_text() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_tables_are_those_of_their_rows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert renewed(text) == text, "python -m tests.doc_tables"


@pytest.mark.parametrize("name", DRAWN)
def test_figures_are_those_of_their_rows(name: str) -> None:
    assert stated(FIGURES / f"{name}.svg") == digest(rows_of(name)), "python -m tests.doc_figures"
    assert any(f"(figures/{name}.svg)" in page.read_text(encoding="utf-8") for page in PAGES)
