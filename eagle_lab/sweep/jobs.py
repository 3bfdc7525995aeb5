"""Points -> jobs: those that one server can serve, in the order that leaves the machine idle least."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eagle_lab.config.content import NOT_CONTENT
from eagle_lab.config.digest import digest, plain
from eagle_lab.config.schema import ServerKind, Spec, SpecKind
from eagle_lab.sweep.points import Point, name_point

MEASURING = ("run", "bench")
"""Verbs that serve; each point of another one is a job of its own."""
PROMPTS = 80
"""Assumed where suite.limit leaves it open."""


@dataclass
class Job:
    points: list[Point]
    """Run one after another in one process; they differ in the suite only, so that the server stays up."""

    @property
    def timed(self) -> bool:
        """Whether nothing may run beside it: its speed, or what its verb does with the machine, would suffer."""
        point = self.points[0]
        return point.verb not in MEASURING or point.config.suite.timed

    @property
    def plain(self) -> bool:
        """Plain decoding: the baseline of others."""
        return self.points[0].config.spec.kind is SpecKind.none

    @property
    def work(self) -> float:
        return sum(work(p) for p in self.points)


def work(point: Point) -> float:
    """Decoding rounds that the point asks for, if nothing is ever accepted: tokens / requests in flight."""
    suite = point.config.suite
    return (suite.limit or PROMPTS) * suite.max_new_tokens / suite.concurrency


def with_baselines(sweep: Path, points: list[Point]) -> list[Point]:
    """The points and, first, the plain decoding that they need and nobody asked for: once per target, server, suite."""

    def condition(p: Point) -> str:
        return digest([plain(part) for part in (p.config.target, p.config.server, p.config.suite)])

    known = {condition(p) for p in points if p.config.spec.kind is SpecKind.none}
    added = []
    for point in points:
        config = point.config
        if point.verb not in MEASURING or config.server.kind is ServerKind.url or condition(point) in known:
            continue
        known.add(condition(point))
        plain_config = replace(config, spec=Spec(), head=None)
        label = f"none,{config.suite.name}"
        added.append(replace(name_point(sweep, point.verb, plain_config, label), baseline=True))
    return [*added, *points]


def jobs(points: list[Point]) -> list[Job]:
    """Groups by server. Baselines first, since every other job reads theirs; then the longest first.

    The longest first lets jobs that run side by side end together.
    """
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(_server(point), []).append(point)
    made = [Job(group) for group in groups.values()]
    return sorted(made, key=lambda j: (not j.plain, -j.work))


def _server(point: Point) -> str:
    """Equal for points that the same server, or the same pair of servers, can serve one after another."""
    if point.verb not in MEASURING:
        return str(point.directory)
    config = point.config
    if config.spec.kind is SpecKind.none:
        kept: dict[str, Any] = {"target": plain(config.target), "server": plain(config.server)}
    else:
        kept = {k: v for k, v in plain(config).items() if k not in (*NOT_CONTENT, "suite")}
    return digest([point.verb, kept, config.suite.timed])


class Estimate:
    """Seconds still needed, from the points that are done: a start-up and so much per decoding round."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, float, float]] = []
        self.speculates = False

    def add(self, started: bool, rounds: float, seconds: float, speculates: bool = True) -> None:
        """A finished point. started: it was the first of its job, so its server's start is in its seconds."""
        self.seen.append((started, rounds, seconds))
        self.speculates |= speculates

    def remaining(self, waiting: list[Job]) -> float | None:
        """None before anything is measured that is like what waits: plain decoding tells nothing of a training."""
        if not self.seen or (not self.speculates and not all(job.plain for job in waiting)):
            return None
        known = np.array([[s, w] for s, w, _ in self.seen], dtype=np.float64)
        scale = known.max(axis=0)
        scale[scale == 0] = 1
        fit, *_ = np.linalg.lstsq(known / scale, np.array([t for *_, t in self.seen]), rcond=None)
        start, rate = np.maximum(fit / scale, 0)
        return float(sum(start + rate * job.work for job in waiting))
