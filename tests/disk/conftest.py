"""An outputs folder made by real stages and sweep plans, without servers."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from eagle_lab.config import load
from eagle_lab.config.paths import conf_dir
from eagle_lab.config.stage import stage
from eagle_lab.disk import inventory
from eagle_lab.disk.garbage import Item, garbage
from eagle_lab.disk.inventory import Entry, User
from eagle_lab.disk.references import References
from eagle_lab.sweep.plan import plan
from eagle_lab.sweep.points import name_points
from eagle_lab.sweep.status import set_status

DAY = 24 * 3600
ANSWERS: dict[str, Any] = {"temperature": 0.0}
SOURCE = {"kind": "self_synth", "count": 4}
SUITES = ["s" * 16]


class Lab:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.cache = root / "outputs", root / "cache"
        self.cache.mkdir(parents=True)
        self.monkeypatch = monkeypatch
        monkeypatch.setattr("eagle_lab.config.provenance._git", lambda *_: None)  # 0.1 s per stage

    def stage(
        self,
        kind: str,
        name: str,
        key: dict[str, Any],
        files: dict[str, int],
        *,
        by: Path | None = None,
        inside: Path | None = None,
        done: bool = True,
        days: float = 3,
    ) -> Path:
        """A stage with files of so many bytes, made by a sweep's point or by hand, so many days ago."""
        argv = ["eagle-lab train"] if by is None else ["__main__.py", "point", str(by)]
        self.monkeypatch.setattr(sys, "argv", argv)
        with stage(inside or self.root, kind, name, key) as work:
            for file, size in files.items():
                (work.path / file).parent.mkdir(exist_ok=True)
                (work.path / file).write_bytes(b"x" * size)
            if done:
                work.finish({})
        self.age(work.path, days)
        return work.path

    def head(self, lr: float, dataset: Path, **how: Any) -> tuple[Path, Path]:
        """(head, its export)."""
        key = {"optim": {"lr": lr}, "dataset": [digest(dataset), "t" * 16]}
        files = {"head.safetensors": 900, "sample.safetensors": 9, "metrics.jsonl": 9, "checkpoints/step=8.ckpt": 5000}
        head = self.stage("heads", "tiny", key, files, **how)
        export = {"config.json": 9, "model.safetensors": 900, "export.json": 9}
        return head, self.stage("export", "sglang", {"head": digest(head)}, export, inside=head, **how)

    def data(self, seed: int, **how: Any) -> tuple[Path, Path, Path]:
        """(prompts, answers, dataset)."""
        both = {"target": "t" * 16, "seed": seed}
        asked = {"target": "t" * 16, "source": SOURCE, "suites": SUITES, "seed": seed}
        prompts = self.stage("prompts", "synth", asked, {"attempts.jsonl": 90}, **how)
        answered = {**both, "prompts": "p" * 16, "answers": ANSWERS}
        answers = self.stage("answers", "synth", answered, {"answers.jsonl": 90}, **how)
        key = {**both, "sources": [SOURCE], "answers": ANSWERS, "suites": SUITES}
        files = {"rows.jsonl": 90, "tokens.safetensors": 90, "server.log": 90}
        return prompts, answers, self.stage("datasets", "synth", key, files, **how)

    def measurement(self, spec: str, tokens: int | None, **how: Any) -> Path:
        kind = "none" if tokens is None else "chain"
        key = {"spec": {"kind": kind, "num_steps": tokens and tokens - 1, "eagle_topk": tokens and 1}}
        key["spec"]["num_draft_tokens"] = tokens
        files = {"rows.jsonl": 90, "requests.jsonl": 90, "server.log": 90, "server_info.json": 9}
        return self.stage("measurements", spec, key, files, **how)

    def sweep(self, name: str, *overrides: str) -> list[Path]:
        """A planned sweep; the directories of its points."""
        GlobalHydra.instance().clear()
        load.register()
        common = ["target=tiny", "draft.vocab_size=64", "server=cpu", "data.name=synth", f"name={name}"]
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            composed = [([o], load.load(compose("run", [*common, o]))) for o in overrides]
        points = name_points(self.root / "sweeps" / name, "run", composed)
        plan(self.root / "sweeps" / name, points)
        return [p.directory for p in points]

    def finish(self, point: Path, *rows: dict[str, Any]) -> None:
        (point / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        set_status(point, "done", seconds=12.4)

    def age(self, path: Path, days: float) -> None:
        """All that is in it, and itself, so many days old."""
        at = time.time() - days * DAY
        for p in [path, *path.rglob("*")]:
            os.utime(p, (at, at))

    def references(self) -> References:
        return References(inventory.outputs(self.root))

    def garbage(self) -> list[Item]:
        found = inventory.outputs(self.root)
        return garbage(found, References(found), self.cache)

    def may_go(self) -> dict[str, str]:
        """Path below outputs -> why."""
        return {str(i.path.relative_to(self.root)): i.why for i in self.garbage()}

    def entry(self, path: Path) -> Entry:
        (found,) = (e for e in inventory.outputs(self.root).stages if e.path == path)
        return found

    def users(self) -> dict[str, User]:
        return {u.name: u for u in inventory.outputs(self.root).users}

    def tree(self) -> dict[str, Any]:
        """Everything below outputs and cache, with content and times."""
        return {
            str(p): (p.lstat().st_mtime_ns, p.read_bytes() if p.is_file() else None)
            for top in (self.root, self.cache)
            for p in [top, *sorted(top.rglob("*"))]
        }


def digest(path: Path) -> str:
    return str(json.loads((path / "manifest.json").read_text())["digest"])


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


@pytest.fixture
def full(lab: Lab) -> tuple[Lab, dict[str, Path]]:
    """A finished sweep with its chain of stages, all three days old and without anything that may go."""
    none, chain = lab.sweep("grid", "spec=none", "spec=chain_5")
    prompts, answers, dataset = lab.data(0, by=chain)
    head, export = lab.head(1e-3, dataset, by=chain)
    (head / "checkpoints/step=8.ckpt").unlink()
    base = lab.measurement("none", None, by=none)
    measured = lab.measurement("chain_5", 5, by=chain)
    replay = lab.stage("replay", "chain_5", {"requests": 4}, {}, inside=measured, by=chain)
    probe = lab.stage("probes", "chain_5", {"aux_width": 9}, {"proof.json": 9, "server.log": 9}, by=chain)
    lab.finish(none, {"measurement": base.name})
    row = {"measurement": measured.name, "head": str(export), "probe": digest(probe)}
    lab.finish(chain, {"measurement": base.name}, row)
    for path in (head, measured):
        lab.age(path, 3)
    stages = {"prompts": prompts, "answers": answers, "dataset": dataset, "head": head, "export": export}
    return lab, {**stages, "base": base, "measured": measured, "replay": replay, "probe": probe, "chain": chain}
