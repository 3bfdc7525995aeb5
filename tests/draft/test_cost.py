"""Counted sizes beside those of real tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from eagle_lab.draft.cost import Document, attention_flops, head_parameters, state_bytes, step_flops
from eagle_lab.draft.head import Head
from tests.draft.conftest import SHAPE

WIDTH = SHAPE.num_aux * SHAPE.target_hidden_size


@pytest.mark.parametrize("fc_norm", [False, True])
def test_the_parameter_count_is_that_of_the_module(fc_norm: bool) -> None:
    shape = replace(SHAPE, fc_norm=fc_norm)
    assert head_parameters(shape) == sum(p.numel() for p in Head(shape).parameters())


def test_products_are_those_that_torch_counts() -> None:
    """One step over one document, every position but the last supervised; torch counts its attention densely."""
    from torch.utils.flop_counter import FlopCounterMode

    from eagle_lab.draft.unroll import one_document

    tokens = 12
    head = Head(SHAPE)
    head.embed = torch.randn(SHAPE.vocab_size, SHAPE.hidden_size)
    batch = one_document(torch.randint(0, SHAPE.vocab_size, (tokens,)), torch.randn(tokens, WIDTH).requires_grad_())
    with FlopCounterMode(display=False) as counted:
        (hidden,) = head(batch, 1)
        head.lm_head(hidden).sum().backward()
    by_name = counted.get_flop_counts()["Global"]
    products = sum(n for op, n in by_name.items() if str(op) in ("aten.mm", "aten.addmm"))
    document = Document(tokens, tokens - 1)
    teacher = 2 * document.rows * (SHAPE.vocab_size + SHAPE.draft_vocab_size) * SHAPE.hidden_size
    ours = step_flops(SHAPE, 1, [document]) - attention_flops(SHAPE, document) - teacher
    assert products == pytest.approx(ours, rel=1e-6)


def test_stored_states_need_no_whole_teacher() -> None:
    document = [Document(12, 11)]
    saved = step_flops(SHAPE, 3, document) - step_flops(SHAPE, 3, document, whole_teacher=False)
    assert saved == 2 * 11 * SHAPE.vocab_size * SHAPE.target_hidden_size


def test_states_are_counted_in_bf16() -> None:
    aux, last = (
        torch.zeros(12, WIDTH, dtype=torch.bfloat16),
        torch.zeros(11, SHAPE.target_hidden_size, dtype=torch.bfloat16),
    )
    assert state_bytes(SHAPE, 12, 11) == aux.nbytes + last.nbytes
