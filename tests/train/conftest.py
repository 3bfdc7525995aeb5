"""A target and a dataset small enough to train on in a second."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from eagle_lab.data.dataset import Dataset, Rows
from eagle_lab.data.store import ENDS_WITH_EOS, HOLDOUT

VOCAB, HIDDEN, EOS = 40, 16, 2


class SmallTarget:
    """Stands where TargetModel does: states are a fixed function of the last three tokens."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(5)
        self.embed_weight = torch.randn(VOCAB, HIDDEN, generator=g)
        self.lm_head_weight = torch.randn(VOCAB, HIDDEN, generator=g)
        self.mix = torch.randn(3, HIDDEN, 3 * HIDDEN, generator=g) * 0.3
        self.captured = 0

    def capture(self, ids: torch.Tensor) -> SimpleNamespace:
        self.captured += len(ids)
        e = self.embed_weight[ids]
        back = [torch.nn.functional.pad(e, (0, 0, n, 0))[:, : e.shape[1]] for n in range(3)]
        aux = torch.tanh(sum(b @ m for b, m in zip(back, self.mix, strict=True)))
        return SimpleNamespace(aux=aux, last=aux[..., :HIDDEN])

    def init_weights(self) -> dict[str, torch.Tensor]:
        return {"lm_head": self.lm_head_weight, "norm": torch.ones(HIDDEN)}


def dataset_of(lengths: list[tuple[int, int]], holdout: int, seed: int = 0) -> Dataset:
    """lengths: (prompt, answer) tokens of each row; the last `holdout` rows are held out; even rows end the turn."""
    g = np.random.default_rng(seed)
    ids = [g.integers(3, VOCAB, p + a).astype(np.int32) for p, a in lengths]
    for i, row in enumerate(ids):
        if i % 2 == 0:
            row[-1] = EOS
    flags = [ENDS_WITH_EOS * (i % 2 == 0) | HOLDOUT * (i >= len(ids) - holdout) for i in range(len(ids))]
    tokens = {
        "input_ids": np.concatenate(ids),
        "offsets": np.cumsum([0, *(len(r) for r in ids)]).astype(np.int64),
        "answer_start": np.array([p for p, _ in lengths], dtype=np.int32),
        "flags": np.array(flags, dtype=np.uint8),
    }
    count = len(ids)
    return Dataset(
        rows=Rows(tokens, np.arange(count)),
        train=Rows(tokens, np.arange(count - holdout)),
        holdout=Rows(tokens, np.arange(count - holdout, count)),
        manifest={"digest": "d" * 16},
    )


@pytest.fixture
def target() -> SmallTarget:
    return SmallTarget()


@pytest.fixture
def dataset() -> Dataset:
    return dataset_of([(3 + i % 4, 5 + (7 * i) % 9) for i in range(22)], holdout=4)
