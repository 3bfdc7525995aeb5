"""Weights & Biases, offline when there is no key or no network; nothing here may stop or stall a run."""

from __future__ import annotations

import netrc
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from eagle_lab.config.content import content_digest
from eagle_lab.config.digest import digest, plain
from eagle_lab.config.schema import Config

INIT_TIMEOUT_S = 30
FINISH_TIMEOUT_S = 60
"""Uploads that take longer at the end are given up; `wandb sync` sends them from the run's directory."""


class WandbTracker:
    def __init__(self, run: Any) -> None:
        self.run = run

    def log(self, values: dict[str, float], step: int) -> None:
        self.run.log(values, step=step)

    def log_row(self, row: dict[str, Any]) -> None:
        scalars = {k: v for k, v in row.items() if isinstance(v, int | float | str) and v is not None}
        prefix = f"{row['spec']}/" if row.get("spec") == "none" else ""
        self.run.summary.update({prefix + k: v for k, v in scalars.items()})


@contextmanager
def wandb_run(config: Config, out: Path, job_type: str) -> Iterator[WandbTracker]:
    """An open run. A sweep point (its directory has a status.json) is named by its directory, grouped by the sweep."""
    run = start(config, out, job_type)
    code = 1
    try:
        yield WandbTracker(run)
        code = 0
    finally:
        run.finish(exit_code=code)


def start(config: Config, out: Path, job_type: str) -> Any:
    """wandb.init with a deterministic id, so a second launch of the same work continues the same run."""
    import wandb

    arguments = settings(config, out, job_type)
    (out / "wandb").mkdir(parents=True, exist_ok=True)
    wanted = mode(config)
    try:
        return wandb.init(mode=wanted, **arguments)
    except wandb.errors.Error as e:
        if wanted == "offline":
            raise
        print(f"wandb: {e}; this run is recorded offline, under {out / 'wandb'}", file=sys.stderr)  # noqa: T201
        return wandb.init(mode="offline", **arguments)


def settings(config: Config, out: Path, job_type: str) -> dict[str, Any]:
    """Arguments of wandb.init, but for the mode."""
    import wandb

    point = (out / "status.json").exists()
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
        # a logger without a block of its own may have left one open; by default init would hand that one back
        "reinit": "finish_previous",
        "settings": wandb.Settings(
            silent=True,
            console="off",
            init_timeout=INIT_TIMEOUT_S,
            login_timeout=INIT_TIMEOUT_S,
            finish_timeout=FINISH_TIMEOUT_S,
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
