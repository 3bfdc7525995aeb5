"""What kind of failure a point ended with, read from its error (which ends with the server's last log lines)."""

from __future__ import annotations

import re

KINDS: dict[str, tuple[str, int]] = {
    # kind: (what its error looks like, how often it is worth another try)
    "port taken": (r"address already in use|is taken by another process|is answered by another process", 2),
    "disk full": (r"No space left on device|Disk quota exceeded", 0),
    "log flooded": (r"It floods its log", 0),
    "out of memory": (r"out of memory|OutOfMemory|Cannot allocate memory|MemoryError|Not enough memory", 0),
    # a kernel that faults once in a million steps; a second time it is no accident
    "CUDA error": (r"illegal memory access|device-side assert|CUDA error|cudaError", 1),
    "hung": (r"It hung: |silent for server\.|does not answer within|was not healthy within", 1),
    # by the kernel for memory or by hand: it would be killed again
    "killed": (r"killed by signal|ended with code -?(9|137)\b|Its process sglang::\S+ is gone", 0),
    "server died": (r"the server died at start|stopped answering|does not answer \(|Its process ended with code", 1),
    "unavailable": (r" answered 50[234]: ", 1),
    "garbled answer": (r"ended without an answer|was cut short|is not what SGLang answers", 1),
}
OTHER = "refused"


def kind(error: str) -> str:
    """The first of KINDS that the error looks like, else "refused": the check that it names failed, and would again."""
    return next((name for name, (pattern, _) in KINDS.items() if re.search(pattern, error)), OTHER)


def retries(name: str) -> int:
    return KINDS[name][1] if name in KINDS else 0
