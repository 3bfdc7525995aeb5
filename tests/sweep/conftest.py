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
def heads(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of two heads, a and b, as $HEADS too."""
    folder = tmp_path_factory.mktemp("heads")
    make_heads(folder, "a", "b")
    monkeypatch.setenv("HEADS", str(folder))
    return folder


def make_heads(folder: Path, *names: str) -> None:
    """Directories that pass for heads until somebody reads them."""
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text("{}")


@pytest.fixture
def points(tmp_path: Path, heads: Path) -> Points:
    """points(verb, overrides, overrides, ...): the named points of a sweep in tmp_path."""

    def make(verb: str, *overrides: list[str]) -> list[Point]:
        load.register()
        shared = ["target=tiny", "draft.vocab_size=64", "server=cpu", f"head={heads}/a"]
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            composed = [(o, load.load(compose(verb, [*shared, *o]))) for o in overrides]
        return name_points(tmp_path, verb, composed)

    return make
