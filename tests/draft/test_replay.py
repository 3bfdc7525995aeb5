from __future__ import annotations

import numpy as np

from eagle_lab.draft.replay import accept_length, histogram, rounds


def test_rounds_walk_by_accepted_drafts_and_the_bonus_token():
    hits = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=bool)
    # row 0: 2 correct, next row 3: 1 correct, next row 5: 3 correct
    assert rounds(hits, 3) == [2, 1, 3]
    assert rounds(hits, 1) == [1, 0, 1, 1]  # rows 0, 2, 3, 5
    assert accept_length([2, 1, 3]) == 3.0
    assert histogram([2, 1, 3], 3) == [0, 1, 1, 1]


def test_rounds_stop_once_the_tokens_are_there():
    hits = np.ones((20, 3), dtype=bool)
    assert rounds(hits, 3, tokens=1) == []  # the prefill's token is enough
    assert rounds(hits, 3, tokens=5) == [3]
    assert rounds(hits, 3, tokens=6) == [3, 3]


def test_without_a_verify_step_the_accept_length_is_one():
    assert accept_length([]) == 1.0
