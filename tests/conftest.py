"""Triton decides at decoration whether a kernel is interpreted: the variable must be set before any op is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

# two workers on two cores: more threads would only wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from eagle_lab.config import load
from eagle_lab.config.paths import conf_dir

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files first whose tests may take the longest, then those with servers, the most long tests first.

    Begun last, one of them kept a worker busy for minutes after all else was done.
    """
    files: dict[object, tuple[float, bool, int]] = {}
    for item in items:
        limit, server, long = files.get(item.path, (0.0, False, 0))
        mark = item.get_closest_marker("timeout")
        files[item.path] = (
            max(limit, float(mark.args[0]) if mark else 0.0),
            server or item.get_closest_marker("server") is not None,
            long + (item.get_closest_marker("long") is not None),
        )
    items.sort(key=lambda item: files[item.path], reverse=True)


@pytest.fixture
def composed() -> Iterator[Callable[..., DictConfig]]:
    """composed("run", "spec=tree_12") -> what Hydra hands to a verb."""
    load.register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(conf_dir()), version_base="1.3"):
        yield lambda verb, *overrides: compose(config_name=verb, overrides=list(overrides))
