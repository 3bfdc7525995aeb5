"""What this machine trains on: device, precision, threads; and what it cannot."""

from __future__ import annotations

import gc
import os

import torch

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config, OpsImpl
from eagle_lab.train.feed import Share
from eagle_lab.train.optimizer import build_optimizer


def check_settings(config: Config) -> None:
    """Raises LabError for an accelerator or kernels that cannot run here, and for an optimiser's wrong arguments."""
    device = compute_device(config)
    if config.ops.impl is OpsImpl.triton and device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise LabError(
            "ops=triton: there is no GPU here. Use ops=auto, or set TRITON_INTERPRET=1 to have triton interpret the "
            "kernels (a thousand times slower)."
        )
    if device.type == "cuda" and config.trainer.devices > torch.cuda.device_count():
        raise LabError(
            f"trainer.devices={config.trainer.devices}: torch sees {torch.cuda.device_count()} GPU(s) here. Lower it, "
            "or set trainer.accelerator=cpu."
        )
    build_optimizer(config.optim.optimizer, [torch.nn.Parameter(torch.zeros(1))])


def release(device: torch.device) -> None:
    """Frees what nobody holds. A fused target is part of a cycle: an 8B one stayed for the whole training (15 GiB)."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def compute_device(config: Config) -> torch.device:
    wanted = config.trainer.accelerator
    if wanted in ("gpu", "cuda") and not torch.cuda.is_available():
        raise LabError(f"trainer.accelerator={wanted}: torch sees no GPU here. Use trainer.accelerator=cpu.")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def precision(wanted: str, device: torch.device) -> str:
    """Lightning's name for trainer.precision."""
    if wanted != "auto":
        return wanted
    return "bf16-mixed" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"


def target_dtype(config: Config, device: torch.device) -> str:
    """What the target is captured in: the serving dtype, so that the head sees the states it will be served."""
    return config.server.dtype if device.type == "cuda" else "float32"


def shared(config: Config) -> Share:
    """This process's part of every step; torchrun says which of how many it is."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return Share(rank, world, config.trainer.accumulate)


def set_threads(config: Config, device: torch.device) -> None:
    """Beside a GPU the CPU only packs batches: 32 threads took 21 cores, and 0.37 s a step, on an H200's host."""
    cores = max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    torch.set_num_threads(config.trainer.num_threads or (min(cores, 4) if device.type == "cuda" else cores))
