"""status.json: what is known of a point."""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path
from typing import Any

from eagle_lab.config.files import check_fields, read_json, write_json

FULL = (errno.ENOSPC, errno.EDQUOT)
MOST_CHARACTERS = 500
"""Of a text: a block is 4096 bytes, and a character in JSON may take 6."""


def status(directory: Path) -> dict[str, Any]:
    """State new, planned, running, done, failed or interrupted, and facts."""
    file = directory / "status.json"
    if not file.exists():
        return {"state": "new"}
    found = read_json(file)
    check_fields(found, {"state": str}, str(file), f"Remove {directory} to run the point again.")
    return found


def set_status(directory: Path, state: str, **facts: Any) -> None:
    """Replaces the state; verb, digest and the number of attempts are kept. A full disk still takes it, cut short."""
    file = directory / "status.json"
    kept = {k: v for k, v in status(directory).items() if k in ("verb", "digest", "attempts")}
    found = {"state": state, "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **kept, **facts}
    try:
        write_json(file, found)
    except OSError as e:
        if e.errno not in FULL or not file.exists():
            raise
        _overwrite(file, found)


def _overwrite(file: Path, facts: dict[str, Any]) -> None:
    """In the block that the file has, so that on a full disk it is still told why a point failed."""
    short = {k: v[:MOST_CHARACTERS] if isinstance(v, str) else v for k, v in facts.items() if k != "traceback"}
    with file.open("r+", encoding="utf-8") as f:
        f.write(json.dumps(short) + "\n")
        f.truncate()
