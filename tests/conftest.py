"""Triton decides at decoration whether a kernel is interpreted: the variable must be set before any op is imported."""

from __future__ import annotations

import os

# two workers on two cores: more threads would only wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with servers first: begun last, one of them kept a worker busy for minutes after all else was done."""
    slow = {item.path for item in items if item.get_closest_marker("server")}
    items.sort(key=lambda item: item.path not in slow)
