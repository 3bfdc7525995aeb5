from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from eagle_lab.config import load
from eagle_lab.config.paths import conf_dir
from eagle_lab.sweep.points import Point, name_points

Points = Callable[..., list[Point]]


@pytest.fixture
def points(tmp_path: Path) -> Points:
    """points(verb, overrides, overrides, ...): the named points of a sweep in tmp_path."""

    def make(verb: str, *overrides: list[str]) -> list[Point]:
        load.register()
        shared = ["target=tiny", "draft.vocab_size=64", "server=cpu", "head=/heads/a"]
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            composed = [(o, load.load(compose(verb, [*shared, *o]))) for o in overrides]
        return name_points(tmp_path, verb, composed)

    return make
