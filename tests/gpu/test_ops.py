"""The kernels compiled, at the sizes of Llama-3.1-8B's head, in bf16: right, small, and compiled once.

tests/ops runs on a GPU too where there is one, at the sizes of triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch

from eagle_lab.benchmark.cases import CASES, Sizes
from eagle_lab.benchmark.timing import check, measure
from eagle_lab.draft.shape import HeadShape
from eagle_lab.ops.dispatch import op_set
from eagle_lab.ops.launch import interpreted
from eagle_lab.ops.unroll_attention import kernel

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")
SHAPE = HeadShape(
    hidden_size=4096,
    target_hidden_size=4096,
    num_aux=3,
    intermediate_size=14336,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=128_256,
    draft_vocab_size=32_000,
    max_position_embeddings=8192,
)
GIB = 2**30


def sizes(tokens: int, supervised: float = 1.0) -> Sizes:
    return Sizes(SHAPE, tokens, supervised, 3, torch.bfloat16, GPU)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"step", "matmuls"}))
@pytest.mark.parametrize(("tokens", "supervised"), [(1000, 1.0), (2048, 0.6)])
def test_large_heads_are_right(name: str, tokens: int, supervised: float) -> None:
    check(name, sizes(tokens, supervised), op_set("triton", GPU))


def test_the_distillation_head_needs_little_beyond_its_two_gradients() -> None:
    s = sizes(4097)
    peak = measure("distill_loss", s, op_set("triton", GPU), repeats=2)["peak_gib"]
    gradients = 2 * 4096 * (s.rows + SHAPE.draft_vocab_size) / GIB
    assert peak - gradients <= 0.15


def test_another_length_or_step_compiles_nothing() -> None:
    """1, multiples of 16 and others would each be a kernel of their own, if triton were left alone."""
    kernels = (kernel.forward_kernel, kernel.query_kernel, kernel.key_kernel, kernel.chain_kernel)
    assert not interpreted(kernel.forward_kernel)

    def compiled() -> int:
        return sum(len(caches[0]) for k in kernels for caches in k.device_caches.values())

    before = None
    for tokens in (64, 65, 100, 160, 333):
        measure("unroll_attention", sizes(tokens), op_set("triton", GPU), repeats=2)
        before = before or compiled()
        assert compiled() == before
