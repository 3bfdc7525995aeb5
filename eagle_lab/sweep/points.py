"""The points of a sweep and the names of their directories."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eagle_lab.config.content import NOT_CONTENT, content_digest
from eagle_lab.config.schema import Config

TRAINING = ("aux", "data", "draft", "loss", "optim", "trainer", "ops", "seed")
"""Groups of the config that decide what a training makes."""


@dataclass
class Point:
    """A verb, its resolved config and its directory."""

    verb: str
    directory: Path
    config: Config
    baseline: bool = False
    """Not asked for, but needed: the plain decoding that other points are compared with."""
    trained_with: str = ""
    """What of its head's training is not that of every point."""

    # once: it looks at every file that the config names
    @cached_property
    def digest(self) -> str:
        return content_digest(self.verb, self.config)


def name_points(sweep: Path, verb: str, composed: list[tuple[list[str], Config]]) -> list[Point]:
    """Gives each (overrides, config) its directory: what differs between the points, and 8 hex digits of the content.

    A directory of the same content is taken again, whatever its readable part, so that a second launch, also a
    narrower one, finds what is done. Points of the same content become one.
    """
    common = set.intersection(*(set(overrides) for overrides, _ in composed)) if len(composed) > 1 else set()
    points: dict[str, Point] = {}
    for overrides, config in composed:
        own = [o for o in overrides if o not in common]
        point = name_point(sweep, verb, config, readable(own))
        point.trained_with = _trained_with(own)
        points.setdefault(point.digest, point)
    return list(points.values())


def _trained_with(overrides: list[str]) -> str:
    """loss.unroll_steps=3 aux=last_three: of the groups that decide what a training makes."""
    mine = (o.lstrip("+~") for o in overrides)
    return " ".join(sorted(o for o in mine if o.partition("=")[0].split(".")[0] in TRAINING))


def name_point(sweep: Path, verb: str, config: Config, label: str) -> Point:
    short = content_digest(verb, config)[:8]
    there = sorted(sweep.glob(f"*-{short}"))
    return Point(verb, there[0] if there else sweep / f"{label}-{short}", config)


def readable(overrides: list[str]) -> str:
    """Leaf keys and values of what decides numbers, sorted, in characters that every file system and shell takes."""
    pairs = (o.lstrip("+~").partition("=") for o in overrides)
    leaves = sorted(
        f"{key.split('.')[-1].split('/')[-1]}={value}"
        for key, _, value in pairs
        if key.split(".")[0] not in ("experiment", *NOT_CONTENT)
    )
    return re.sub(r"[^A-Za-z0-9=._-]+", "_", ",".join(leaves)).strip("_")[:60] or "point"
