"""Values that would train or serve garbage die at load, with the value in the message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from omegaconf import DictConfig

from eagle_lab.config import load
from eagle_lab.config.errors import LabError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.max_epochs=-4", "trainer.max_epochs=-4: at least 0"),
        ("trainer.batch_size=0", "trainer.batch_size=0: at least 1"),
        ("loss.step_decay=nan", "loss.step_decay=nan"),
        ("draft.vocab_size=0", "draft.vocab_size=0: at least 1"),
        ("draft.head_dim=7", "even"),
        ("server.context_length=-5", "server.context_length=-5"),
        ("server.mem_fraction=9", "server.mem_fraction=9"),
        ("server.dtype=floatx", "server.dtype=floatx"),
        ("suite.temperature=-1", "suite.temperature=-1"),
        ("suite.seed=-1", "suite.seed=-1: at least 0"),
        ("data.answers.concurrency=0", "data.answers.concurrency=0"),
        ("name=../x", "names a directory"),
        ("target.name=a/b", "names a directory"),
    ],
)
def test_refused_at_load(composed: Callable[..., DictConfig], override: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        load.load(composed("run", override))
