"""Throughput and latencies of requests whose clock readings are made up."""

import pytest

from eagle_lab.evaluate.speed import fastest, per_prompt, rounds, share, speed, steady


def request(started, total, tokens, first=0.0, turn=0, prompt="p", verify_ct=0):
    return {
        "verify_ct": verify_ct,
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


def test_rounds_of_a_machine_that_is_slow_half_of_the_time():
    """One in flight, 20 rounds of 10 or 15 ms after a prompt of 1 s."""
    slow, fast = 1 + 20 * 0.015, 1 + 20 * 0.010
    requests, at = [], 0.0
    for total in (fast, fast, slow, slow, slow, fast, slow, slow):
        requests.append(request(at, total, 31, first=1.0, verify_ct=20))
        at += total
    found = rounds(requests)
    assert found["undisturbed_round_s"] == pytest.approx(0.010)
    assert found["round_spread"] == pytest.approx(1.5)
    plain = [{**r, "verify_ct": 0} for r in requests]
    assert rounds(plain)["undisturbed_round_s"] == pytest.approx(0.2 / 30), "a token each"
    assert fastest([0.03, 0.02, *[0.02] * 9]) == pytest.approx(0.02)


def test_rounds_of_the_tail_and_of_answers_of_one_token_do_not_count():
    # two slots: the third starts last, and after the first end from then on one slot is empty
    requests = [
        request(0, 2, 11, verify_ct=10),
        request(0, 4, 11, verify_ct=10),
        request(2, 4, 11, verify_ct=10),
        request(0, 0.1, 1),
    ]
    assert rounds(requests)["undisturbed_round_s"] == pytest.approx(0.22)
    assert rounds([request(0, 1, 1)]) == {"undisturbed_round_s": None, "round_spread": None}
