"""Packages that are not there become importable, those that are stay themselves."""

from __future__ import annotations

import subprocess
import sys

from eagle_lab.serve.launch import CPU_OPERATORS


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -S: no site-packages, so that triton and torchvision are absent whatever is installed here
ABSENT = f"import sys; sys.path.insert(0, {str(CPU_OPERATORS)!r}); import sitecustomize\n"


def test_absent_packages_are_inert():
    code = """
import triton, triton.language as tl
from torchvision.io import decode_jpeg
from torchvision.transforms import InterpolationMode
from triton.backends.compiler import BaseBackend
@triton.jit
def kernel(x): return x + 1
@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])
def tuned(x): return x
assert kernel(1) == 2 and tuned(3) == 3
assert triton.cdiv(7, 2) == 4 and [triton.next_power_of_2(n) for n in (0, 1, 2, 5)] == [1, 1, 2, 8]
assert "cuda" not in triton.backends.backends and not triton.backends
assert tl.constexpr(3).value == 3 and InterpolationMode.BICUBIC == "InterpolationMode.BICUBIC"
print("fine")
"""
    assert run(ABSENT + code) == "fine"


def test_other_packages_stay_missing():
    code = "try:\n import no_such_package\nexcept ImportError:\n print('missing')"
    assert run(ABSENT + code) == "missing"


def test_an_installed_package_is_left_alone(tmp_path):
    (tmp_path / "triton.py").write_text("real = True")
    alone = f"import sys; sys.path[:0] = [{str(CPU_OPERATORS)!r}, {str(tmp_path)!r}]; import sitecustomize\n"
    assert run(alone + "import triton; print(triton.real)") == "True"


def test_processes_are_forked_whatever_is_asked_for():
    code = """
import multiprocessing
multiprocessing.set_start_method("spawn", force=True)
print(multiprocessing.get_start_method())
"""
    assert run(ABSENT + code) == "fork"
