"""What ran: versions, commit and command line, kept beside every artifact."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("eagle-lab", "torch", "triton", "transformers", "lightning", "sglang", "safetensors", "hydra-core", "wandb")


def versions() -> dict[str, str]:
    """Installed versions of the packages that can change a number, and Python's."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def code_digest() -> str:
    """First 16 hex digits of the SHA-256 over this package's source files, so that a sweep runs by one code only."""
    root = Path(__file__).resolve().parents[1]
    h = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        h.update(f"{file.relative_to(root)}\0".encode())
        h.update(file.read_bytes())
    return h.hexdigest()[:16]


def _git(*args: str) -> str | None:
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "-C", str(here), *args], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def provenance() -> dict[str, Any]:
    """Versions, argv, host and, in a checkout, the commit and whether the tree differs from it."""
    sha = _git("rev-parse", "HEAD")
    return {
        "versions": versions(),
        "argv": sys.argv,
        "machine": f"{platform.machine()} {platform.system()}",
        "git_sha": sha,
        "git_dirty": bool(_git("status", "--porcelain")) if sha else None,
    }
