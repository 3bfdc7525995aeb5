"""Throughput and latencies of requests whose clock readings are made up."""

import pytest

from eagle_lab.evaluate.speed import per_prompt, share, speed, steady


def request(started, total, tokens, first=0.0, turn=0, prompt="p"):
    return {
        "prompt": prompt,
        "started": started,
        "total_s": total,
        "token_ids": [0] * tokens,
        "first_token_s": first,
        "turn": turn,
    }


def test_one_in_flight_counts_everything():
    requests = [request(0, 2, 20), request(2, 1, 10), request(3, 3, 30)]
    assert steady(requests) == (0, 6)
    assert per_prompt(requests) == {"p": [60, 6]}


def test_the_tail_is_cut_where_the_first_slot_stays_empty():
    # two slots: the third request takes the place of the first; the second ends at 4, then one slot is idle until 6
    requests = [request(0, 2, 20, prompt="a"), request(0, 4, 40, prompt="b"), request(2, 4, 41, prompt="c")]
    assert steady(requests) == (0, 4)
    # of the third, half of the time between its first and last token: 1 + 40 / 2
    assert per_prompt(requests) == {"a": [20, 2], "b": [40, 4], "c": [21, 2]}
    assert speed(requests)["tok_s"] == pytest.approx(81 / 4)
    assert speed(requests)["steady_s"] == pytest.approx(4)
    assert speed(requests)["tok_s_whole"] == pytest.approx(101 / 6)


def test_a_request_still_in_prefill_counts_nothing():
    requests = [request(0, 2, 20), request(0, 10, 100, first=3)]
    assert steady(requests) == (0, 2)
    assert [share(r, 2) for r in requests] == [(20, 2), (0, 2)]


def test_rounds_of_turns_are_added_not_mixed():
    # between the rounds there is idle time, which is nobody's
    requests = [request(0, 1, 10), request(1, 1, 10), request(100, 2, 40, turn=1)]
    found = speed(requests)
    assert per_prompt(requests) == {"p": [60, 4]}
    assert found["tok_s"] == pytest.approx(60 / 4)
    assert found["steady_s"] == pytest.approx(4)
    assert found["tok_s_whole"] == pytest.approx(60 / 4)


def test_latencies():
    found = speed([request(0, 1.5, 11, first=0.5), request(1.5, 0.2, 1, first=0.2), request(2, 2.1, 11, first=0.1)])
    assert found["tok_s_per_user"] == pytest.approx(23 / 3.8)
    assert found["ttft_p50"] == pytest.approx(0.2)
    # of the two answers with more than one token: 0.1 and 0.2 seconds
    assert found["itl_p50"] == pytest.approx(0.15)
    assert found["itl_p99"] == pytest.approx(0.199)


def test_answers_of_one_token_only():
    assert speed([request(0, 0.2, 1, first=0.2)])["itl_p50"] == 0.0
