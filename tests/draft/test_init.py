from __future__ import annotations

import pytest
import torch

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import DraftInit
from eagle_lab.draft.init import initialise
from tests.draft.conftest import SHAPE, random_head


def target_weights() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(4)
    s = SHAPE
    sizes = {
        "lm_head": (s.vocab_size, s.hidden_size),
        "norm": (s.hidden_size,),
        "layer.input_layernorm.weight": (s.hidden_size,),
        "layer.post_attention_layernorm.weight": (s.hidden_size,),
        "layer.self_attn.q_proj.weight": (s.num_attention_heads * s.head_dim, s.hidden_size),
        "layer.self_attn.k_proj.weight": (s.num_key_value_heads * s.head_dim, s.hidden_size),
        "layer.self_attn.v_proj.weight": (s.num_key_value_heads * s.head_dim, s.hidden_size),
        "layer.self_attn.o_proj.weight": (s.hidden_size, s.num_attention_heads * s.head_dim),
        "layer.mlp.gate_proj.weight": (s.intermediate_size, s.hidden_size),
        "layer.mlp.up_proj.weight": (s.intermediate_size, s.hidden_size),
        "layer.mlp.down_proj.weight": (s.hidden_size, s.intermediate_size),
    }
    return {name: torch.randn(size, generator=g) for name, size in sizes.items()}


def test_from_the_target_every_part_has_its_source() -> None:
    head, given = random_head(), target_weights()
    initialise(head, DraftInit.target, given, seed=0)
    ids, h = torch.arange(SHAPE.draft_vocab_size) + head.d2t, SHAPE.hidden_size
    assert torch.equal(head.lm_head.weight, given["lm_head"][ids])
    assert torch.equal(head.norm.weight, given["norm"])
    assert torch.equal(head.midlayer.hidden_norm.weight, given["layer.input_layernorm.weight"])
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(head.midlayer.self_attn, name).weight
        assert torch.equal(weight[:, h:], given[f"layer.self_attn.{name}.weight"])
        assert weight[:, :h].abs().max() < 0.2  # the embedding half: small noise
    aux = torch.randn(5, 3 * h)
    torch.testing.assert_close(head.fc(aux), aux[:, 2 * h :])


def test_the_seed_decides_a_random_start() -> None:
    a, b, c = random_head(seed=1), random_head(seed=2), random_head(seed=3)
    initialise(a, DraftInit.random, {}, seed=7)
    initialise(b, DraftInit.random, {}, seed=7)
    initialise(c, DraftInit.random, {}, seed=8)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.fc.weight, c.fc.weight)
    assert (a.norm.weight == 1).all()


def test_a_target_of_another_width_is_refused() -> None:
    given = target_weights() | {"lm_head": torch.zeros(SHAPE.vocab_size, 8)}
    with pytest.raises(LabError, match=r"16 differs from the target's 8"):
        initialise(random_head(), DraftInit.target, given, seed=0)


def test_a_target_with_another_layer_shape_shares_what_fits() -> None:
    given = target_weights()
    del given["layer.self_attn.k_proj.weight"]  # latent attention has none
    given["layer.mlp.gate_proj.weight"] = torch.zeros(99, 16)  # an expert's size
    head = random_head()
    initialise(head, DraftInit.target, given, seed=0)
    assert torch.equal(head.midlayer.mlp.up_proj.weight, given["layer.mlp.up_proj.weight"])
    assert head.midlayer.mlp.gate_proj.weight.abs().max() > 0
