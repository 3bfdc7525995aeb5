"""Accept length along an answer, from the drafts that its verify steps accepted."""

from collections.abc import Callable

import numpy as np
import pytest

from eagle_lab.evaluate.intervals import Interval
from eagle_lab.evaluate.positions import by_position, drift, within


def served(prompt: str, tokens: int, rng: np.random.Generator, chance: Callable[[int], float], drafts: int = 4) -> dict:
    """An answer of at least `tokens` tokens whose next draft is correct with `chance` of the position."""
    at, found = 1, []
    while at < tokens:
        correct = 0
        while correct < drafts and rng.random() < chance(at):
            correct += 1
        found.append(correct)
        at += correct + 1
    return {"prompt": prompt, "correct_by_step": found}


def test_a_step_belongs_to_where_it_starts():
    # they start at 1, 4, 5 and 9 tokens
    steps = [2, 0, 3, 1]
    assert within(steps, 0, 4) == (2, 1)
    assert within(steps, 4, 9) == (3, 2)
    assert within(steps, 9, 99) == (1, 1)
    assert within(steps, 6, 9) == (0, 0)


def test_stretches_by_hand():
    # 8 steps of 4 tokens to token 33, then 15 of 2; and 31 steps of one token
    a = {"prompt": "a", "correct_by_step": [3] * 8 + [1] * 15}
    b = {"prompt": "b", "correct_by_step": [0] * 31}
    first, second = by_position([a, b], 64)
    assert first["accept_length"] == pytest.approx(1 + 24 / 39)
    # resampled over two prompts, the ends are the prompts themselves
    assert (first["low"], first["high"]) == (1, 4)
    assert (first["from"], first["to"], first["requests"]) == (1, 32, 2)
    assert second == {"from": 33, "to": 64, "accept_length": 2.0, "low": None, "high": None, "requests": 1}
    assert by_position([a, b], 200) == [first, second]
    assert by_position([a, b], 48)[1]["to"] == 48
    # a has 63 tokens: 8 steps start before 31.5, b has 32 and 15 of 31 steps start before 16
    assert drift([a, b]) == Interval(pytest.approx(15 / (15 + 16) - 24 / (8 + 15)), -2.0, 0.0)


def test_stretches_add_up_to_the_answer():
    rng = np.random.default_rng(1)
    for _ in range(30):
        steps = served("p", int(rng.integers(2, 300)), rng, lambda at: 0.6)["correct_by_step"]
        parts = np.array([within(steps, a, b) for a, b in [(0, 32), (32, 64), (64, 128), (128, 256), (256, 512)]])
        assert parts.sum(0).tolist() == [sum(steps), len(steps)]


def test_what_was_not_seen_or_took_no_step_says_nothing():
    one = [served("a", 60, np.random.default_rng(2), lambda at: 0.5)]
    silent = [{"prompt": "y", "correct_by_step": None}, {"prompt": "z", "correct_by_step": []}]
    assert by_position([*one, *silent], 64) == by_position(one, 64)
    assert drift([*one, *silent]) == drift(one)
    assert (by_position(silent, 64), drift(silent)) == ([], None)


def test_no_decay_is_seen_where_there_is_none():
    rng = np.random.default_rng(3)
    requests = [served(f"p{i}", 256, rng, lambda at: 0.6) for i in range(400)]
    truth = 1 + sum(0.6**k for k in range(1, 5))
    # a stretch of 32 tokens of 400 answers has some 5,600 steps: a standard error of 0.02
    assert [s["accept_length"] for s in by_position(requests, 256)] == pytest.approx([truth] * 4, abs=0.06)
    found = drift(requests)
    assert found.low < 0 < found.high


def test_decay_is_seen_where_it_is():
    rng = np.random.default_rng(4)
    requests = [served(f"p{i}", 256, rng, lambda at: 0.8 - 0.4 * at / 256) for i in range(100)]
    assert drift(requests).high < -0.5
    lengths = [s["accept_length"] for s in by_position(requests, 256)]
    assert lengths == sorted(lengths, reverse=True)
