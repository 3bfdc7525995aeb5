"""States on disk: what was captured comes back, a killed capture goes on, a wrong shard is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from eagle_lab.config.errors import LabError
from eagle_lab.config.stage import Stage, finished, stage
from eagle_lab.data.dataset import Dataset
from eagle_lab.train import features
from eagle_lab.train.features import Stored, capture, shards
from eagle_lab.train.feed import Online, States
from tests.train.conftest import HIDDEN, SmallTarget, dataset_of

WIDTH = 3 * HIDDEN
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """About six rows each."""
    monkeypatch.setattr(features, "SHARD_BYTES", 6 * 20 * 2 * WIDTH)


@pytest.fixture
def rows() -> Dataset:
    return dataset_of([(4 + i % 5, 3 + 7 * i % 23) for i in range(40)], holdout=5)


def made(root: Path, rows: Dataset, source: Any = None) -> Stage:
    with stage(root, "features", "small", {"format": 1}) as work:
        if work.manifest is None:
            source = source or Online(SmallTarget(), rows.rows, CPU)
            work.finish(capture(work.path, rows.rows, source, WIDTH, HIDDEN, 4))
    return work


def same(found: States, wanted: States) -> bool:
    """To a unit of bfloat16, since another batch sums in another order."""
    assert torch.equal(found.best.top, wanted.best.top)
    torch.testing.assert_close(found.best.lse, wanted.best.lse, atol=1e-5, rtol=1e-5)
    for a, b in ((found.aux, wanted.aux), (found.last, wanted.last)):
        torch.testing.assert_close(a.float(), b, atol=1e-6, rtol=2**-7)
    return True


def test_every_row_comes_back_rounded_to_bfloat16(tmp_path: Path, rows: Dataset) -> None:
    work = made(tmp_path, rows)
    assert work.manifest is not None
    assert len(work.manifest["first_rows"]) > 3
    source = Online(SmallTarget(), rows.rows, CPU)
    stored = Stored(work.path, work.manifest, rows.rows)
    for order in ([0, 1, 2], [39, 7, 7, 20], list(range(40))):
        for index, found in zip(order, stored(order), strict=True):
            assert found.aux.dtype == torch.bfloat16
            assert same(found, source([index])[0]), index


def test_a_killed_capture_goes_on_with_the_shard_that_is_missing(tmp_path: Path, rows: Dataset) -> None:
    target = SmallTarget()
    source, calls = Online(target, rows.rows, CPU), 0

    def dying(indices: Any) -> list[States]:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return source(indices)

    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, rows, dying)
    (path,) = (tmp_path / "features").iterdir()
    left = {f.name: f.stat().st_mtime_ns for f in path.glob("features-*")}
    assert left
    target.captured = 0
    work = made(tmp_path, rows, source)
    assert {f.name: f.stat().st_mtime_ns for f in work.path.glob("features-*") if f.name in left} == left
    assert 0 < target.captured < 40
    stored = Stored(work.path, work.manifest or {}, rows.rows)
    assert all(same(a, b) for a, b in zip(stored(range(40)), source(range(40)), strict=True))


@pytest.mark.parametrize("how", ["cut", "changed", "gone", "of another capture"])
def test_a_shard_that_is_not_what_was_captured_is_named(tmp_path: Path, rows: Dataset, how: str) -> None:
    path = made(tmp_path / "a", rows).path
    shard = path / "features-00001.safetensors"
    raw = shard.read_bytes()
    if how == "gone":
        shard.unlink()
    elif how == "of another capture":
        other = made(tmp_path / "b", dataset_of([(5, 9)] * 40, holdout=5)).path
        shard.write_bytes((other / shard.name).read_bytes())
    else:
        shard.write_bytes(raw[:-10] if how == "cut" else raw[:-10] + b"0123456789")
    with pytest.raises(LabError, match=rf"{shard}: .* Remove .* to redo the stage"):
        finished(path)


def test_shards_hold_all_rows_once(rows: Dataset) -> None:
    spans = shards(rows.rows, WIDTH, HIDDEN)
    assert [i for span in spans for i in span] == list(range(40))
    assert shards(rows.rows[:0], WIDTH, HIDDEN) == []
