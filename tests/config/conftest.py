from __future__ import annotations

import pytest

from eagle_lab.config import load


@pytest.fixture(scope="session", autouse=True)
def registered() -> None:
    load.register()
