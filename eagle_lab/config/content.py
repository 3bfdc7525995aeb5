"""Which part of a config decides numbers, and the digest of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.digest import digest, plain
from eagle_lab.config.provenance import versions

# they name or place a run and change none of its numbers
NOT_CONTENT = (
    *("name", "track", "paths", "hydra", "stay", "results"),
    *("jobs", "dry_run", "replan", "remove", "bench_ops", "plan", "doctor"),
)

BEFORE_SERVING = ("data", "features", "train", "export")
"""Verbs that read neither spec nor suite."""

SERVER_NOT_CONTENT = ("host", "port", "start_timeout_s", "request_timeout_s", "stall_timeout_s")
"""Where it listens, and how long one waits for it: a point that is done has the same numbers under others."""


def content_digest(verb: str, config: Any) -> str:
    """Digest of the verb, the config without names and places, what its paths hold, and the engine's version."""
    unread = ("spec", "suite") if verb in BEFORE_SERVING else ()
    content = {k: v for k, v in plain(config).items() if k not in (*NOT_CONTENT, *unread)}
    server = {k: v for k, v in content.get("server", {}).items() if k not in SERVER_NOT_CONTENT}
    content |= {"server": server}
    return digest({"verb": verb, "config": content, "files": _files(content), "sglang": versions().get("sglang")})


def _files(value: Any) -> list[Any]:
    """Name, size and time of every file that a value names, also one folder deep: edited input is other input."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [found for part in parts for found in _files(part)]
    if not isinstance(value, str) or ("/" not in value and not value.endswith(".jsonl")):
        return []
    path = Path(value)
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files if f.is_file()]
    except (OSError, ValueError):  # a template with a slash in it is no path
        return []
