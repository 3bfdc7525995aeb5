from __future__ import annotations

import pytest
import torch

from eagle_lab.draft.head import Head
from eagle_lab.draft.shape import HeadShape
from eagle_lab.ops.dispatch import OpSet

SHAPE = HeadShape(
    hidden_size=16,
    target_hidden_size=16,
    num_aux=3,
    intermediate_size=24,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    vocab_size=40,
    draft_vocab_size=24,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
    rope_parameters={"rope_type": "default", "rope_theta": 100.0},
)


def random_head(shape: HeadShape = SHAPE, seed: int = 0) -> Head:
    head = Head(shape, OpSet())
    generator = torch.Generator().manual_seed(seed)
    for p in head.parameters():
        p.data = torch.randn(p.shape, generator=generator) * 0.4
    ids = torch.randperm(shape.vocab_size, generator=generator)[: shape.draft_vocab_size].sort().values
    head.d2t.copy_(ids - torch.arange(len(ids)))
    head.t2d[ids] = True
    head.embed = torch.randn(shape.vocab_size, shape.hidden_size, generator=generator)
    return head.eval()


@pytest.fixture
def head() -> Head:
    return random_head()
