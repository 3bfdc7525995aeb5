"""The configured optimiser; apart from the rest of training, so that `plan` can try its arguments without Lightning."""

from __future__ import annotations

from typing import Any

import torch

from eagle_lab.config.errors import LabError


def build_optimizer(config: dict[str, Any], parameters: Any) -> torch.optim.Optimizer:
    """The only place that turns a `_target_` (one of OPTIMIZERS) into an object."""
    kwargs = dict(config)
    path = str(kwargs.pop("_target_"))
    if "lr" not in kwargs:
        raise LabError(f"optim.optimizer has no lr (it has {sorted(kwargs)}). Give it: optim.optimizer.lr=1e-4.")
    try:
        optimizer: torch.optim.Optimizer = getattr(torch.optim, path.rpartition(".")[2])(parameters, **kwargs)
    except (TypeError, ValueError) as e:
        raise LabError(f"optim.optimizer: {path} refuses {kwargs}: {e}.") from e
    return optimizer
