"""Draft ids that mean other tokens than d2t says are told apart from a head that is merely weak."""

from __future__ import annotations

import torch

from eagle_lab.doctor.checks.map_meaning import meaning

DRAFTS = torch.tensor([0] * 10 + [1] * 10 + [2] * 4)
TOKENS = torch.tensor([7] * 6 + [3, 4, 5, 6] + [9] * 5 + [1, 2, 3, 4, 5] + [8] * 4)


def test_a_right_map() -> None:
    assert meaning(DRAFTS, TOKENS, torch.tensor([7, 9, 8])[DRAFTS]) == (11 / 20, 1.0, 20)


def test_a_map_made_anew() -> None:
    assert meaning(DRAFTS, TOKENS, torch.tensor([9, 7, 8])[DRAFTS]) == (11 / 20, 0.0, 20)


def test_a_head_that_knows_nothing_follows_nothing() -> None:
    telling, _, count = meaning(torch.zeros(100, dtype=torch.int64), torch.arange(100), torch.zeros(100))
    assert (telling, count) == (0.01, 100)


def test_no_proposals() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert meaning(none, none, none) == (0.0, 0.0, 0)
