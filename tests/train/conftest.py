"""A target and a dataset small enough to train on in a second."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from safetensors.torch import load_file

from eagle_lab.config import load
from eagle_lab.config.paths import conf_dir
from eagle_lab.data.dataset import Dataset, Rows
from eagle_lab.data.store import ENDS_WITH_EOS, HOLDOUT
from eagle_lab.track.tracker import NOWHERE
from eagle_lab.train import fit as fit_module
from eagle_lab.train.fit import HEAD_FILE, train_head

VOCAB, HIDDEN, EOS = 40, 16, 2


class SmallTarget:
    """Stands where TargetModel does: states are a fixed function of the last three tokens."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(5)
        self.embed_weight = torch.randn(VOCAB, HIDDEN, generator=g)
        self.lm_head_weight = torch.randn(VOCAB, HIDDEN, generator=g)
        self.mix = torch.randn(3, HIDDEN, 3 * HIDDEN, generator=g) * 0.3
        self.captured = 0
        self.passed_parameters = 1000

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


LOCATED = SimpleNamespace(
    name="small",
    num_hidden_layers=8,
    hidden_size=HIDDEN,
    vocab_size=VOCAB,
    eos_token_ids=[EOS],
    config={
        "hidden_size": HIDDEN, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
        "vocab_size": VOCAB, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 100.0,
    },
)  # fmt: skip


def config_of(*overrides: str):
    load.register()
    base = [
        "target=tiny",
        "trainer=small",
        "trainer.accelerator=cpu",
        "trainer.num_threads=1",
        "track=none",
        "draft.vocab_size=24",
        "loss.unroll_steps=3",
    ]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose(
            "train", [*base, "optim=adamw_small", "optim.optimizer.lr=3e-3", "loss.unroll_steps=3", *overrides]
        )
    return load.load(cfg)


@pytest.fixture
def small_target(monkeypatch):
    """Training finds SmallTarget in TargetModel's place."""
    monkeypatch.setattr(fit_module, "TargetModel", lambda *_, **__: SmallTarget())


def run(out, dataset, *overrides, track=NOWHERE):
    out.mkdir(exist_ok=True)
    return train_head(config_of(*overrides), LOCATED, dataset, out, track)


def same(a, b):
    a, b = load_file(a / HEAD_FILE), load_file(b / HEAD_FILE)
    assert a.keys() == b.keys()
    return all(torch.equal(a[k], b[k]) for k in a)


class Killed(BaseException):
    pass


@pytest.fixture
def die_at(monkeypatch):
    """Makes the process of training end at the n-th batch from now on."""
    build = fit_module.Feed.batch

    def arm(step):
        calls = 0

        def batch(self, indices):
            nonlocal calls
            calls += 1
            if calls == step:
                raise Killed
            return build(self, indices)

        monkeypatch.setattr(fit_module.Feed, "batch", batch)

    return arm
