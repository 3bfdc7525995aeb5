"""status.json: what is known of a point."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from eagle_lab.config.files import check_fields, read_json, write_json


def status(directory: Path) -> dict[str, Any]:
    """State new, planned, running, done, failed or interrupted, and facts."""
    file = directory / "status.json"
    if not file.exists():
        return {"state": "new"}
    found = read_json(file)
    check_fields(found, {"state": str}, str(file), f"Remove {directory} to run the point again.")
    return found


def set_status(directory: Path, state: str, **facts: Any) -> None:
    """Replaces the state; verb, digest and the number of attempts are kept."""
    kept = {k: v for k, v in status(directory).items() if k in ("verb", "digest", "attempts")}
    write_json(directory / "status.json", {"state": state, "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **kept, **facts})
