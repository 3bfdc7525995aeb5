"""Distances between logits in units of the last place."""

from __future__ import annotations

import math

import pytest
import torch

from eagle_lab.doctor.near_ties import gap_ulps, stray_ulps


@pytest.mark.parametrize(
    ("values", "dtype", "ulps"),
    [
        # bfloat16 holds 8 bits: between 16 and 32 they are 1/8 apart
        ([17.0, 16.875], "bfloat16", 1),
        ([17.0, 16.75], "bfloat16", 2),
        ([17.0, 16.0], "bfloat16", 8),
        # between 8 and 16, 1/16
        ([9.0, 8.875], "bfloat16", 2),
        ([-9.0, -9.125], "bfloat16", 2),
        ([17.0, 17.0], "bfloat16", 0),
        ([17.0, 17.0 - 2**-6], "float16", 1),
        ([1.0, 1.0 - 2**-23], "float32", 1),
    ],
)
def test_gap(values: list[float], dtype: str, ulps: float) -> None:
    best, other = values
    logits = torch.tensor([best, other, *[best - 1] * 30])
    assert gap_ulps(logits, 0, dtype) == 0
    assert gap_ulps(logits, 1, dtype) == ulps


def test_near_zero_the_spread_is_the_unit() -> None:
    """A hair's breadth below a best logit of zero is no distance: logits of this row are 3 apart."""
    logits = torch.tensor([1e-6, -0.02, *torch.linspace(-5, 0, 30).tolist()])
    assert gap_ulps(logits, 1, "bfloat16") < 3


def test_an_answer_that_ended_is_no_tie() -> None:
    assert gap_ulps(torch.zeros(3), None, "bfloat16") == math.inf


def test_a_plain_answer_strays_by_its_furthest_token() -> None:
    logits = torch.tensor([[17.0, 16.875, 12.0], [12.0, 17.0, 16.5], [17.0, 12.0, 12.0]])
    assert stray_ulps(logits, [0, 1, 0], "bfloat16") == 0
    assert stray_ulps(logits, [1, 2, 0], "bfloat16") == 4
    assert stray_ulps(logits[:0], [], "bfloat16") == 0
