from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from eagle_lab.config import load
from eagle_lab.config.paths import conf_dir


@pytest.fixture(scope="session", autouse=True)
def registered() -> None:
    load.register()


@pytest.fixture
def composed() -> Iterator[Callable[..., DictConfig]]:
    """composed("run", "spec=tree_12") -> what Hydra hands to a verb."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(conf_dir()), version_base="1.3"):
        yield lambda verb, *overrides: compose(config_name=verb, overrides=list(overrides))
