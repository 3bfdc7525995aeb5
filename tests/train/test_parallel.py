"""A step done in parts, by one process after another or by several at once, is the same step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from eagle_lab.config.files import read_jsonl
from eagle_lab.data.dataset import Dataset
from eagle_lab.train.feed import Feed, Online, Share
from eagle_lab.train.fit import HEAD_FILE
from eagle_lab.train.module import step_rows
from tests.train.conftest import SmallTarget, config_of, dataset_of, run

pytestmark = pytest.mark.usefixtures("small_target")
CPU = torch.device("cpu")


def test_every_row_is_somebodys() -> None:
    for world, parts, size in ((1, 1, 5), (2, 1, 5), (1, 3, 5), (2, 2, 7), (4, 2, 3)):
        shares = [Share(rank, world, parts).of(range(size)) for rank in range(world)]
        assert all(len(share) == parts for share in shares)
        assert sorted(i for share in shares for part in share for i in part) == list(range(size))


@pytest.fixture
def losses(tmp_path: Path) -> dict[int, list[float]]:
    data = dataset_of([(4, 6 + i % 9) for i in range(45)], holdout=10)
    found = {}
    for parts in (1, 2, 3, 9):
        settings = ("trainer.batch_size=7", "trainer.max_epochs=3", "trainer.log_every=1")
        run(tmp_path / str(parts), data, *settings, f"trainer.accumulate={parts}")
        rows = read_jsonl(tmp_path / str(parts) / "metrics.jsonl")
        found[parts] = [r["train/loss"] for r in rows if "train/loss" in r]
    return found


def test_a_step_in_parts_has_the_loss_and_the_gradient_of_the_whole(
    losses: dict[int, list[float]], tmp_path: Path
) -> None:
    assert len(losses[1]) == 15
    whole = load_file(tmp_path / "1" / HEAD_FILE)
    for parts in (2, 3, 9):
        assert losses[parts] == pytest.approx(losses[1], rel=1e-4)
        found = load_file(tmp_path / str(parts) / HEAD_FILE)
        for name, tensor in whole.items():
            torch.testing.assert_close(found[name], tensor, atol=2e-4, rtol=2e-3)


def test_who_has_nothing_to_do_counts_nothing(dataset: Dataset) -> None:
    feed = Feed(dataset.rows, Online(SmallTarget(), dataset.rows, CPU), CPU)
    loss = config_of().loss
    t2d = torch.ones(64, dtype=torch.bool)
    shares = [Share(rank, 3, 2) for rank in range(3)]
    batches = [feed.parts([1, 4], share, lambda b: step_rows(b, t2d, loss).trained) for share in shares]
    assert [len(b) for b in batches] == [2, 2, 2]
    totals = sum(b[0].whole for b in batches)
    whole = feed.batch([1, 4])
    assert torch.equal(totals, step_rows(whole, t2d, loss).trained.sum(-1))
    idle = batches[2][0]
    assert not step_rows(idle, t2d, loss).trained.any()
    assert not step_rows(replace(idle, whole=None), t2d, loss).trained.any()
