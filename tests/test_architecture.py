"""Who imports whom, what stays free of torch, how large things are, and that the project stands alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "eagle_lab"
MODULES = sorted(PACKAGE.rglob("*.py"))

# left may import right, and itself; cli may import all of them
MAY_IMPORT = {
    "config": set(),
    "ops": set(),
    "track": {"config"},
    "target": {"config"},
    "serve": {"config"},
    "draft": {"ops", "config"},
    "sweep": {"config", "track"},
    "disk": {"sweep", "config"},
    "report": {"config", "track"},
    "export": {"draft", "config"},
    "data": {"serve", "target", "config"},
    "evaluate": {"serve", "config", "track"},
    "plan": {"train", "draft", "target", "data", "config"},
    "benchmark": {"train", "draft", "ops", "config"},
    "train": {"data", "draft", "ops", "target", "config", "track"},
    "doctor": {"plan", "train", "draft", "evaluate", "export", "serve", "target", "data", "config"},
}
TORCH_FREE = {"config", "cli", "sweep", "disk", "report", "track", "serve"}
GRAB_BAGS = {"utils", "util", "helpers", "common", "misc", "manager"}


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(file: Path) -> set[str]:
    """Packages of eagle_lab that a module imports, at any depth: an import inside a function is a dependency too."""
    names: list[str] = []
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    parts = [name.split(".") for name in names if name.startswith("eagle_lab.")]
    return {p[1] for p in parts if (PACKAGE / p[1]).is_dir()}


def package_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0]


def test_every_package_has_a_rule() -> None:
    packages = {d.name for d in PACKAGE.iterdir() if d.is_dir() and any(d.rglob("*.py"))}
    assert packages - {"conf", "suites"} == {*MAY_IMPORT, "cli"}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    files = [f for f in MODULES if package_of(f) == package]
    assert files
    wrong = {str(f.relative_to(ROOT)): imported(f) - MAY_IMPORT[package] - {package} for f in files}
    assert {f: names for f, names in wrong.items() if names} == {}


def test_torch_free_at_import() -> None:
    """One process imports them all in turn and says after which one torch was there."""
    files = [f for f in MODULES if package_of(f) in TORCH_FREE and "cpu" not in f.relative_to(PACKAGE).parts]
    names = [".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in files]
    assert len(names) > 20
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules: sys.exit(f'{name} imports torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *names], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_files_are_no_longer_than_400_lines() -> None:
    sizes = {str(f.relative_to(ROOT)): len(f.read_text(encoding="utf-8").splitlines()) for f in MODULES}
    assert {f: n for f, n in sizes.items() if n > 400} == {}


def test_functions_are_no_longer_than_60_lines() -> None:
    """Kernels may have 90: a kernel cannot be cut without reading and writing its tiles once more."""
    long = {}
    for file in MODULES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                kernel = any("jit" in ast.unparse(d) for d in node.decorator_list)
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > (90 if kernel else 60):
                    long[f"{file.relative_to(ROOT)}:{node.name}"] = lines
    assert long == {}


def test_yaml_files_are_no_longer_than_60_lines() -> None:
    files = [*(ROOT / "conf").rglob("*.yaml"), *(ROOT / "sweeps").rglob("*.yaml")]
    assert files
    assert [str(f) for f in files if len(f.read_text(encoding="utf-8").splitlines()) > 60] == []


def test_modules_are_named_by_what_they_do() -> None:
    assert [str(f) for f in MODULES if GRAB_BAGS & {f.stem, *f.parent.relative_to(PACKAGE).parts}] == []


def test_every_module_says_what_it_is_for() -> None:
    speaking = [f for f in MODULES if f.read_text(encoding="utf-8").strip() and f.name != "__main__.py"]
    assert [str(f) for f in speaking if not ast.get_docstring(tree(f))] == []


# spelled in halves, so that this file does not find itself
FOREIGN = re.compile(
    "|".join(
        [
            r"(?<![\w.])/wo" + r"rk(?![\w-])",
            r"(?<![\w-])sha" + r"red/",
            r"\bbri" + r"ef\.md\b",
            r"\bhel" + r"per session\b",
            r"\bpypi" + r"[.-]",
            r"\bpythonho" + r"sted\b",
            r"\bregistry\.n" + r"pmjs\b",
        ]
    ),
    re.IGNORECASE,
)


def test_the_project_stands_alone() -> None:
    """No path or name of the machine that it was written on in any tracked file."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        file = ROOT / name
        if file.is_file():
            text = file.read_bytes().decode("utf-8", errors="ignore")
            found += [f"{name}: {m.group()}" for m in FOREIGN.finditer(text)]
    assert found == []
