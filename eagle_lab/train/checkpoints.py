"""Which checkpoint training goes on from, and which weights become the head."""

from __future__ import annotations

import struct
import sys
import zipfile
from pathlib import Path

import torch

from eagle_lab.config.schema import Config, Keep

CHECKPOINTS = "checkpoints"
BEST = "best"
"""Name of the checkpoint with trainer.keep=best's weights."""


def newest(checkpoints: Path) -> str | None:
    """The whole checkpoint with the most steps; one that is torn is put aside, out loud."""
    found = sorted(checkpoints.glob("step=*.ckpt"), key=lambda p: int(p.stem.split("=")[1].split("-")[0]))
    torn = []
    while found and not _whole(found[-1]):
        torn.append(found.pop())
    for checkpoint in torn:
        aside = checkpoint.rename(checkpoint.with_suffix(".torn"))
        print(f"{checkpoint}: not a whole checkpoint; put aside as {aside.name}", file=sys.stderr)  # noqa: T201
    if torn:
        where = f"goes on from {found[-1].name}" if found else "starts again from step 0: no other checkpoint is there"
        print(f"training {where}", file=sys.stderr)  # noqa: T201
    return str(found[-1]) if found else None


def _whole(checkpoint: Path) -> bool:
    """Whether every part has the checksum that torch.save gave it; nothing is unpickled."""
    try:
        with zipfile.ZipFile(checkpoint) as parts:
            return parts.testzip() is None
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError, NotImplementedError, struct.error):
        return False


def keep_best(config: Config, module: torch.nn.Module, checkpoints: Path, steps: int) -> int:
    """With trainer.keep=best gives the module those weights; the step whose weights it has then."""
    best = checkpoints / f"{BEST}.ckpt"
    if config.trainer.keep is Keep.last or not best.exists():
        return steps
    found = torch.load(best, weights_only=True)
    module.load_state_dict(found["state_dict"])
    return int(found["global_step"])
