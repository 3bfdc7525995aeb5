"""Weights & Biases, offline when there is no key or no network; nothing here may stop or stall a run."""

from __future__ import annotations

import netrc
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Literal
from urllib.parse import urlsplit

from eagle_lab.config.content import content_digest
from eagle_lab.config.digest import digest, plain
from eagle_lab.config.paths import in_sweep
from eagle_lab.config.schema import Config
from eagle_lab.track.tracker import Artifact

INIT_TIMEOUT_S = 30
FINISH_TIMEOUT_S = 60
"""Uploads that take longer at the end are given up; `wandb sync` sends them from the run's directory."""
FLUSH: dict[str, Any] = {"x_transaction_log_flush_interval": 1.0}
"""Seconds of records that a kill -9 loses (W&B's default is 15); wandb before 0.31 may not know the setting."""


class WandbTracker:
    def __init__(self, run: Any) -> None:
        self.run = run
        self.lineage: dict[str, Any] = {}
        self.uses: list[Thread] = []
        self.lost = False

    def log(self, values: dict[str, float], step: int) -> None:
        self._tell(lambda: self.run.log(values, step=step))

    def summary(self, values: dict[str, Any]) -> None:
        self._tell(lambda: self.run.summary.update(values))

    def link(self, **digests: Any) -> None:
        self.lineage |= {k: v for k, v in digests.items() if v is not None}
        self._tell(lambda: self.run.config.update({"lineage": self.lineage}, allow_val_change=True))

    def made(self, artifact: Artifact) -> None:
        self._tell(lambda: self.run.log_artifact(_files(artifact), aliases=[artifact.digest]))

    def used(self, artifact: Artifact) -> None:
        if self.run.offline or self.run.disabled:
            return
        # it hashes the files and waits for the server, which may never answer
        use = Thread(target=self._use, args=(artifact,), daemon=True)
        use.start()
        self.uses.append(use)

    def _use(self, artifact: Artifact) -> None:
        try:
            # given as files and not by name: a version that the server has is found by content, others are uploaded
            self.run.use_artifact(_files(artifact), aliases=[artifact.digest])
        except Exception as e:  # noqa: BLE001 - whatever the server says, the run goes on
            print(f"wandb: {artifact.name}:{artifact.digest} is not recorded as an input: {e}", file=sys.stderr)  # noqa: T201

    def settle(self) -> None:
        """Waits for the inputs, but not for long."""
        end = time.monotonic() + FINISH_TIMEOUT_S
        for use in self.uses:
            use.join(max(0.0, end - time.monotonic()))

    def finish(self, code: int) -> None:
        self._tell(lambda: self.run.finish(exit_code=code))

    def _tell(self, act: Callable[[], Any]) -> None:
        """W&B works in a process of its own; when that one dies (memory, a full disk), the run goes on without it."""
        if self.lost:
            return
        try:
            act()
        except Exception as e:  # noqa: BLE001 - OSErrors, its own errors, or what the next version raises
            self.lost = True
            print(f"wandb: {type(e).__name__}: {e}; from here on this run is on disk only", file=sys.stderr)  # noqa: T201


def _files(artifact: Artifact) -> Any:
    import wandb

    # characters and length that W&B takes
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", artifact.name)[:128]
    made = wandb.Artifact(name, type=artifact.type, metadata=plain(artifact.metadata))
    for file in artifact.files:
        # a finished stage is never written again; the default would copy each file into the home directory
        made.add_file(str(file.resolve()), policy="immutable")
    return made


@contextmanager
def wandb_run(config: Config, out: Path, job_type: str) -> Iterator[WandbTracker]:
    """An open run. A sweep point (its directory has a status.json) is named by its directory, grouped by the sweep."""
    track = WandbTracker(start(config, out, job_type))
    code = 1
    try:
        yield track
        track.settle()
        code = 0
    finally:
        track.finish(code)


def start(config: Config, out: Path, job_type: str) -> Any:
    """wandb.init with a deterministic id, so a second launch of the same work continues the same run."""
    import wandb

    arguments = settings(config, out, job_type)
    (out / "wandb").mkdir(parents=True, exist_ok=True)
    attempts = list(dict.fromkeys([mode(config), "offline"]))
    for attempt in attempts:
        try:
            return wandb.init(mode=attempt, **arguments)
        except (wandb.errors.Error, OSError) as e:
            print(f"wandb, {attempt}: {e}", file=sys.stderr)  # noqa: T201
    return wandb.init(mode="disabled", **arguments)


def settings(config: Config, out: Path, job_type: str) -> dict[str, Any]:
    """Arguments of wandb.init, but for the mode."""
    import wandb

    point = in_sweep(out)
    name = out.name if point else config.name
    content = content_digest(job_type, config)
    return {
        "project": config.track.project,
        "entity": config.track.entity,
        "dir": str(out),
        "id": digest({"content": content, "group": config.name, "name": name}),
        "name": name,
        "group": config.name if point else None,
        "job_type": job_type,
        "config": plain(config),
        "resume": "allow",
        # one that the calling program has open is not ours to write to, nor to finish
        "reinit": "create_new",
        "settings": wandb.Settings(
            silent=True,
            console="off",
            init_timeout=INIT_TIMEOUT_S,
            login_timeout=INIT_TIMEOUT_S,
            finish_timeout=FINISH_TIMEOUT_S,
            **{name: value for name, value in FLUSH.items() if name in wandb.Settings.model_fields},
        ),
    }


def mode(config: Config) -> Literal["online", "offline", "disabled"]:
    # wandb's own variable may turn a run down, whatever the config says
    turned_down = os.environ.get("WANDB_MODE") in ("offline", "disabled")
    wish = os.environ["WANDB_MODE"] if turned_down else config.track.mode.value
    base = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    if wish == "disabled":
        return "disabled"
    if wish == "offline" or (wish == "auto" and not _has_key(base)):
        return "offline"
    if not _reachable(base):
        print(f"wandb: {base} cannot be reached; this run is recorded offline", file=sys.stderr)  # noqa: T201
        return "offline"
    return "online"


def _has_key(base: str) -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(str(urlsplit(base).hostname)) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _reachable(base: str) -> bool:
    # wandb itself retries for minutes before it gives up; a name that resolves and a port that answers take no time
    url = urlsplit(base)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        with socket.create_connection((str(url.hostname), port), timeout=3):
            return True
    except OSError:
        return False
