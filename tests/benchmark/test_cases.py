"""What bench-ops times is run here on the CPU, by the reference and in triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from eagle_lab.benchmark.cases import CASES, Sizes
from eagle_lab.benchmark.timing import check, copy_bandwidth, measure
from eagle_lab.draft.cost import Document, step_flops
from eagle_lab.draft.shape import HeadShape
from eagle_lab.ops.dispatch import OpSet, op_set

CPU = torch.device("cpu")
SHAPE = HeadShape(
    hidden_size=32,
    target_hidden_size=32,
    num_aux=3,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=200,
    draft_vocab_size=70,
    max_position_embeddings=64,
)
SIZES = Sizes(SHAPE, tokens=24, supervised=0.5, steps=2, dtype=torch.float32, device=CPU)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("impl", ["reference", "triton"])
def test_every_case_is_right_and_is_timed(name: str, impl: str) -> None:
    ops = op_set(impl, CPU)
    check(name, SIZES, ops)
    row = measure(name, SIZES, ops, repeats=2)
    assert row["op"] == name
    assert 0 < row["ms_p20"] <= row["ms"] <= row["ms_p80"]
    assert row["gb_s"] > 0 or row["tflop_s"] > 0


def test_a_wrong_op_is_not_timed() -> None:
    wrong = replace(OpSet(), swiglu=lambda gate, up: gate * up)
    with pytest.raises(AssertionError, match=r"swiglu, output 0: .* found"):
        check("swiglu", SIZES, wrong)


def test_the_work_of_the_whole_step_is_counted_as_by_hand() -> None:
    """Llama-3.1-8B's head at 4096 positions, 7 steps: about 73 TFLOP (dense products and attention)."""
    shape = HeadShape(4096, 4096, 3, 14336, 32, 8, 128, 128256, 32000, 4096)
    layer = 2 * 4096 * (32 + 16) * 128 + 4096 * 4096 + 3 * 4096 * 14336
    dense = 6 * 4096 * (7 * (layer + 32000 * 4096) + 3 * 4096 * 4096)
    attention = 7 * 3.5 * 4 * 4096 * 4096 / 2 * 4096
    given = 2 * 4096 * (128256 + 32000) * 4096
    found = step_flops(shape, 7, [Document(4096, 4095)])
    assert found == pytest.approx(dense + attention + given, rel=0.001)
    assert found == pytest.approx(73e12, rel=0.1)


def test_a_copy_has_a_bandwidth() -> None:
    assert copy_bandwidth(CPU, repeats=2) > 0.1
