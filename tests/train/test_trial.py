"""A trial is a training: its numbers are those of real steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from eagle_lab.config.errors import LabError
from eagle_lab.draft.cost import Document
from eagle_lab.train import trial as trial_module
from eagle_lab.train.feed import supervised
from eagle_lab.train.trial import STEPS, made_up, trial
from tests.train.conftest import LOCATED, VOCAB, config_of

pytestmark = pytest.mark.usefixtures("small_target")

DOCUMENTS = [Document(30, 20), Document(24, 23)] * STEPS


def test_made_up_rows_have_the_sizes_asked_for() -> None:
    data = made_up(DOCUMENTS, VOCAB, seed=0)
    assert [(len(r.input_ids), len(supervised(r))) for r in data.train] == DOCUMENTS
    assert len(data.holdout) == 0
    assert data.rows[0].input_ids.max() < VOCAB


@pytest.mark.parametrize("capture", ["online", "cached", "stored"])
def test_steps_are_taken_and_timed(tmp_path: Path, capture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    real = trial_module.train_head
    monkeypatch.setattr(trial_module, "train_head", lambda *a: trained.append(real(*a)))
    monkeypatch.setattr("eagle_lab.train.fit.TargetWeights", lambda *_, **__: real_target())
    config = config_of(f"trainer.capture={capture}", "trainer.batch_size=2", "trainer.max_epochs=50")
    found = trial(config, LOCATED, DOCUMENTS, 2, tmp_path)
    assert trained[0]["steps"] == STEPS * (2 if capture == "cached" else 1)
    assert found.first_tokens_s > 0
    assert found.later_tokens_s > 0
    assert found.peak_gib is None
    assert not list((tmp_path / "checkpoints").glob("step=*"))


def real_target() -> object:
    from tests.train.conftest import SmallTarget

    return SmallTarget()


def test_too_much_for_the_gpu_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trial_module, "train_head", full)
    with pytest.raises(LabError, match=r"8 rows of up to 30 tokens do not fit .* trainer\.batch_tokens"):
        trial(config_of(), LOCATED, DOCUMENTS, 8, tmp_path)
