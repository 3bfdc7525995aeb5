"""The tracker as a Lightning logger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.schema import Config, TrackKind


def lightning_logger(config: Config, out: Path) -> Any:
    """A Lightning WandbLogger, or None with track=none.

    It logs to the run that `tracker` has open. Outside of such a block it opens one for `out`, which ends when the
    next one starts or the process ends.
    """
    if config.track.kind is TrackKind.none:
        return None
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    from eagle_lab.track.weights_and_biases import start

    run = wandb.run or start(config, out, "train")
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(experiment=run, save_dir=out)
