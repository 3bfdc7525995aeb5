"""Packed dense layers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from sgl_kernel import layers


@pytest.mark.parametrize("bias", [False, True])
def test_equals_linear_and_packs_once(bias):
    weight, b = torch.nn.Parameter(torch.randn(48, 32)), torch.randn(48) if bias else None
    with torch.inference_mode():
        for shape in ((1, 32), (7, 32), (2, 3, 32)):
            x = torch.randn(shape)
            torch.testing.assert_close(layers.packed_linear(x, weight, b), F.linear(x, weight, b), atol=1e-5, rtol=1e-5)
            packed = weight.packed_by_onednn
        assert layers.packed_linear(torch.randn(0, 32), weight, b).shape == (0, 48)
    assert weight.packed_by_onednn is packed


def test_a_row_has_the_same_bits_in_every_batch():
    weight = torch.nn.Parameter(torch.randn(960, 576))
    x = torch.randn(17, 576)
    with torch.inference_mode():
        whole = layers.packed_linear(x, weight)
        for count in (1, 4, 5, 16):
            assert torch.equal(layers.packed_linear(x[:count], weight), whole[:count])


def test_other_precisions_go_through_torch():
    weight, x = torch.nn.Parameter(torch.randn(8, 4).bfloat16()), torch.randn(2, 4).bfloat16()
    assert torch.equal(layers.packed_linear(x, weight), F.linear(x, weight))
    assert not hasattr(weight, "packed_by_onednn")


def test_only_a_plain_lm_head_is_replaced():
    class UnquantizedEmbeddingMethod:
        pass

    head = SimpleNamespace(weight=torch.nn.Parameter(torch.randn(6, 4)), quant_method=UnquantizedEmbeddingMethod())
    x, said = torch.randn(2, 4), torch.zeros(1)

    def original(*_):
        return said

    plain, fp32 = (SimpleNamespace(use_fp32_lm_head=flag) for flag in (False, True))
    torch.testing.assert_close(layers.lm_head(original, plain, x, head), x @ head.weight.T)
    assert layers.lm_head(original, fp32, x, head) is said
    head.quant_method = object()
    assert layers.lm_head(original, plain, x, head) is said
