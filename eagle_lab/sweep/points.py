"""One point of a sweep: a verb, its resolved config and its directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eagle_lab.config.schema import Config


@dataclass
class Point:
    verb: str
    directory: Path
    config: Config
