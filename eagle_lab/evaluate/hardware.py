"""What the server runs on, as far as it decides speed."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from eagle_lab.config.schema import Server, ServerKind


def hardware(server: Server) -> str:
    """GPU names, or the CPU's name and core count, or the URL of a server elsewhere."""
    if server.kind is ServerKind.url:
        return str(server.url)
    if server.kind is ServerKind.gpu and (gpus := _gpus(server.tp)):
        return gpus
    return f"{_cpu()} x{os.cpu_count()}"


def _gpus(count: int) -> str | None:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{done.stdout.splitlines()[0].strip()} x{count}" if done.stdout.strip() else None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
