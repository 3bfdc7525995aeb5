"""`eagle-lab rank DIR`: one process of a training that train.launch has spread; torchrun starts it."""

from __future__ import annotations

import os
from pathlib import Path

from eagle_lab.config import load
from eagle_lab.config.errors import LabError, Preempted
from eagle_lab.config.files import read_json


def run_rank(out: Path) -> int:
    import torch

    from eagle_lab.cli.stages import first_head, head_tensors, locate_target
    from eagle_lab.config.digest import plain
    from eagle_lab.data.dataset import load as load_dataset
    from eagle_lab.track.tracker import NOWHERE
    from eagle_lab.train.fit import train_head
    from eagle_lab.train.launch import ASKED, answered

    asked = read_json(out / ASKED)
    config = load.load_file(Path(asked["config"]))
    if torch.cuda.is_available() and config.trainer.accelerator != "cpu":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    target = locate_target(config)
    first = first_head(config, target)
    features = asked["features"] and (Path(asked["features"]), read_json(Path(asked["features"]) / "manifest.json"))
    try:
        dataset = load_dataset(Path(asked["dataset"]))
        start = head_tensors(first) if first else None
        answered(out, {"facts": plain(train_head(config, target, dataset, out, NOWHERE, features, start))})
        # with NCCL: what the others still need of this process is on its way first
        torch.distributed.destroy_process_group()
    except Preempted as e:
        answered(out, {"error": str(e), "preempted": True})
        return e.exit_code
    except LabError as e:
        answered(out, {"error": str(e)})
        return e.exit_code
    return 0
