from __future__ import annotations

import time

import numpy as np
import pytest

from eagle_lab.train.schedule import Steps, padding, plan


def test_every_row_once_per_epoch_and_the_seed_decides():
    lengths = list(np.random.default_rng(0).integers(5, 90, 101))
    made = plan(lengths, batch_size=8, epochs=3, max_steps=-1, seed=1)
    assert made.steps_per_epoch == 13
    assert len(made.steps) == 39
    for epoch in range(3):
        rows = sorted(i for step in made.steps[13 * epoch : 13 * (epoch + 1)] for i in step)
        assert rows == list(range(101))
    assert made == plan(lengths, 8, 3, -1, 1)
    assert made != plan(lengths, 8, 3, -1, 2)
    assert plan(lengths, 8, 3, 5, 1).steps == made.steps[:5]


def test_similar_lengths_share_a_step():
    lengths = list(np.random.default_rng(0).integers(5, 90, 512))
    made = plan(lengths, 8, 1, -1, 0)
    spread = np.mean([np.ptp(np.array(lengths)[s]) for s in made.steps])
    assert spread < 20  # unsorted batches of 8 spread over about 67


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_steps_continue_where_training_stands(ahead):
    made = Steps([[1], [2], [3], [4]], lambda step: [(step, part) for part in "ab"], lambda: 2, each=2, ahead=ahead)
    assert list(made) == [([3], "a"), ([3], "b"), ([4], "a"), ([4], "b")]
    assert len(made) == 8


def test_the_time_that_the_loop_waits_is_kept():
    def build(step):
        time.sleep(0.01)
        return [step]

    made = Steps([[1], [2], [3], [4]], build, lambda: 1)
    assert made.waited == 0
    assert list(made) == [[2], [3], [4]]
    assert made.waited >= 0.03
    ready = Steps([[1], [2]], lambda step: [step], lambda: 0, ahead=1)
    batches = iter(ready)
    next(batches)
    waited = ready.waited
    time.sleep(0.05)
    next(batches)
    assert ready.waited - waited < 0.05, "what the loop does itself is no waiting"


def test_what_fails_ahead_fails_in_its_turn():
    def build(step):
        if step == [2]:
            raise ValueError("spoilt")
        return [step]

    made = iter(Steps([[1], [2]], build, lambda: 0, ahead=1))
    assert next(made) == [1]
    with pytest.raises(ValueError, match="spoilt"):
        next(made)


def test_a_step_keeps_to_its_tokens_and_no_row_is_lost():
    lengths = [*np.random.default_rng(0).integers(5, 90, 300).tolist(), 700]
    made = plan(lengths, batch_size=32, epochs=2, max_steps=-1, seed=0, batch_tokens=512)
    for step in made.steps:
        assert len(step) <= 32
        assert len(step) == 1 or len(step) * max(lengths[i] for i in step) <= 512
    first = made.steps[: made.steps_per_epoch]
    assert sorted(i for step in first for i in step) == list(range(301))
    assert [300] in first  # longer than a step may be
    assert len(made.steps) < 2 * 301 / 4  # and steps are filled
    assert made != plan(lengths, 32, 2, -1, 0)


def test_padding_is_told():
    assert padding([[0, 1], [2]], [10, 30, 5]) == 1 - 45 / 65
    assert padding([], []) == 0
