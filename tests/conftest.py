"""Triton decides at decoration whether a kernel is interpreted: the variable must be set before any op is imported."""

from __future__ import annotations

import os

# two workers on two cores: more threads would only wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
