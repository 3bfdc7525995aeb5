from __future__ import annotations

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Draft
from eagle_lab.draft.shape import head_shape, rope_parameters

TARGET = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96,
    "vocab_size": 500, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
}  # fmt: skip


def test_sizes_follow_the_target_and_head_dim_is_not_derived():
    shape = head_shape(Draft(vocab_size=100), TARGET, 3)
    assert (shape.hidden_size, shape.head_dim, shape.num_key_value_heads, shape.intermediate_size) == (64, 32, 2, 96)
    assert shape.max_position_embeddings == 256
    assert head_shape(Draft(vocab_size=100, max_position_embeddings=128), TARGET, 3).max_position_embeddings == 128


def test_a_draft_vocab_larger_than_the_vocab_is_refused_with_both_sizes():
    with pytest.raises(LabError, match=r"501.*500"):
        head_shape(Draft(vocab_size=501), TARGET, 3)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(LabError, match="4 attention heads are no multiple of 3"):
        head_shape(Draft(vocab_size=10, num_key_value_heads=3), TARGET, 3)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"rope_theta": 5e5}, {"rope_type": "default", "rope_theta": 5e5}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, {"rope_type": "default", "rope_theta": 1e6}),
        (
            {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            {"rope_type": "llama3", "factor": 8.0, "rope_theta": 5e5},
        ),
    ],
)
def test_both_spellings_of_rope(config, wanted):
    assert rope_parameters(config) == wanted


def test_a_latent_attention_target_gets_a_llama_shaped_head():
    kimi = {**TARGET, "hidden_size": 7168, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 192}
    shape = head_shape(Draft(vocab_size=100), {**kimi, "kv_lora_rank": 512}, 3)
    assert shape.head_dim == 112


def test_sizes_that_the_target_does_not_give_are_named():
    short = {k: v for k, v in TARGET.items() if k not in ("intermediate_size", "max_position_embeddings")}
    with pytest.raises(LabError, match=r"draft\.intermediate_size, draft\.max_position_embeddings\. Set it"):
        head_shape(Draft(vocab_size=100), short, 3)
    assert head_shape(Draft(vocab_size=100, intermediate_size=8, max_position_embeddings=9), short, 3)
