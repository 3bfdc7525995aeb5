"""Distances between logits in units of the last place."""

from __future__ import annotations

import math

import pytest
import torch

from eagle_lab.doctor.near_ties import MOST_ULPS, gap_ulps


@pytest.mark.parametrize(
    ("values", "dtype", "ulps"),
    [
        # bfloat16 holds 8 bits: between 16 and 32 they are 1/8 apart
        ([17.0, 16.875], torch.bfloat16, 1),
        ([17.0, 16.75], torch.bfloat16, 2),
        ([17.0, 16.0], torch.bfloat16, 8),
        # between 8 and 16, 1/16
        ([9.0, 8.875], torch.bfloat16, 2),
        ([-9.0, -9.125], torch.bfloat16, 2),
        ([17.0, 17.0], torch.bfloat16, 0),
        ([17.0, 17.0 - 2**-6], torch.float16, 1),
        ([1.0, 1.0 - 2**-23], torch.float32, 1),
    ],
)
def test_gap(values: list[float], dtype: torch.dtype, ulps: float) -> None:
    logits = torch.tensor([*values, -30.0], dtype=dtype)
    assert gap_ulps(logits, 0, 1) == gap_ulps(logits, 1, 0) == ulps


def test_both_tokens_must_be_near_the_best() -> None:
    logits = torch.tensor([17.0, 16.875, 25.0], dtype=torch.bfloat16)
    assert gap_ulps(logits, 0, 1) > MOST_ULPS


def test_an_answer_that_ended_is_no_tie() -> None:
    assert gap_ulps(torch.zeros(3), None, 1) == math.inf
