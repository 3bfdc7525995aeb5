"""Accept length against hand-made counts, and the interval against simulated suites whose truth is known."""

import numpy as np
import pytest

from eagle_lab.evaluate import intervals


def request(prompt, correct, steps):
    return {"prompt": prompt, "correct_drafts": correct, "verify_ct": steps}


def simulated(prompts: int, rng: np.random.Generator) -> dict[str, list[float]]:
    """Chains of 4 drafts; each prompt has its own acceptance and its own length, as real suites do."""
    found = {}
    for p in range(prompts):
        steps = int(rng.integers(15, 60))
        correct = int(np.minimum(rng.geometric(1 - rng.beta(6, 3), size=steps) - 1, 4).sum())
        found[f"p{p}"] = [correct, steps, correct + steps, 0.02 * steps]
    return found


def test_pooled_is_not_the_mean_of_requests():
    requests = [request("a", 9, 3), request("b", 0, 1)]
    assert intervals.accept_length(intervals.per_prompt(requests)).value == pytest.approx(1 + 9 / 4)
    assert intervals.per_request(requests) == pytest.approx((4 + 1) / 2)


def test_turns_of_a_prompt_are_one_sample():
    requests = [request("a", 2, 2), request("a", 4, 2), request("b", 1, 4)]
    assert intervals.per_prompt(requests)["a"] == [6, 4]
    assert intervals.accept_length(intervals.per_prompt(requests)).value == pytest.approx(1 + 7 / 8)


def test_answers_of_one_token_say_nothing():
    with_empty = intervals.per_prompt([request("a", 2, 2), request("b", 1, 2), request("c", 0, 0)])
    without = intervals.per_prompt([request("a", 2, 2), request("b", 1, 2)])
    assert intervals.accept_length(with_empty) == intervals.accept_length(without)
    with pytest.raises(ValueError, match="no verify step"):
        intervals.accept_length(intervals.per_prompt([request("c", 0, 0)]))
    assert intervals.per_request([request("c", 0, 0)]) is None


def test_one_prompt_has_no_interval_and_equal_prompts_have_none_to_speak_of():
    alone = intervals.accept_length({"a": [3, 2, 5, 1.0]})
    assert (alone.value, alone.low, alone.high) == (2.5, None, None)
    same = intervals.accept_length({k: [12, 4, 17, 1.0] for k in "abc"})
    assert (same.value, same.low, same.high) == (4.0, 4.0, 4.0)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    whole = np.array(list(simulated(100_000, np.random.default_rng(4)).values()))
    truth = 1 + whole[:, 0].sum() / whole[:, 1].sum()
    found = [intervals.accept_length(simulated(40, rng)) for _ in range(200)]
    covered = np.mean([i.low <= truth <= i.high for i in found])
    # 95 % asked; 200 trials have a standard error of 1.5 %, the percentile method loses 1 to 2 %
    assert 0.89 <= covered <= 0.99
    assert np.mean([i.value for i in found]) == pytest.approx(truth, rel=0.01)


def test_the_same_rows_give_the_same_interval():
    suite = simulated(20, np.random.default_rng(5))
    assert intervals.accept_length(suite) == intervals.accept_length(dict(reversed(suite.items())))


def test_a_paired_difference_sees_what_unpaired_intervals_hide():
    rng = np.random.default_rng(6)
    a = simulated(40, rng)
    # head b gets a tenth of the drafts less on every prompt
    b = {k: [round(0.9 * c), s, n, t] for k, (c, s, n, t) in a.items()}
    one, other = intervals.accept_length(a), intervals.accept_length(b)
    assert one.low < other.high, "the two intervals overlap"
    difference = intervals.accept_length_difference(a, b)
    assert difference.value == pytest.approx(one.value - other.value)
    assert 0 < difference.low < difference.value < difference.high
    assert intervals.accept_length_difference(a, a) == intervals.Interval(0.0, 0.0, 0.0)


def test_pairs_are_matched_by_prompt_not_by_order_and_others_are_refused():
    a = {"x": [3, 2, 5, 1.0], "y": [0, 5, 5, 1.0]}
    assert intervals.accept_length_difference(a, {"y": a["y"], "x": a["x"]}).value == 0
    with pytest.raises(ValueError, match="not the same prompts: y"):
        intervals.accept_length_difference(a, {"x": a["x"]})
    with pytest.raises(ValueError, match="no prompt with verify steps"):
        intervals.accept_length_difference({"x": [0, 0, 1, 1.0]}, {"x": [3, 2, 5, 1.0]})


def row(tok_s, prompts):
    return {"tok_s": tok_s, "prompts": prompts}


def test_the_speedup_and_its_interval_are_of_the_ratio_of_tok_s():
    # two requests in flight in both: tok_s = 2 x 150 tokens / 15 s, and 2 x 150 / 6 s
    slow = row(20.0, {"x": [0, 0, 100, 10.0], "y": [0, 0, 50, 5.0]})
    fast = row(50.0, {"x": [60, 40, 100, 4.0], "y": [30, 20, 50, 2.0]})
    ratio = intervals.speedup(fast, slow)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.5, 2.5, 2.5))
    assert intervals.speedup(slow, slow) == intervals.Interval(1.0, 1.0, 1.0)
    # slots that idle a tenth of the time make the run slower, whatever the prompts
    idle = intervals.speedup(row(45.0, fast["prompts"]), slow)
    assert (idle.value, idle.low, idle.high) == pytest.approx((2.25, 2.25, 2.25))


def test_prompts_that_only_the_ramp_down_answered_make_no_interval_unknown():
    prompts = {"x": [0, 0, 100, 10.0], "y": [0, 0, 50, 5.0], "late": [0, 0, 0.0, 0.2]}
    found = intervals.speedup(row(10.0, prompts), row(10.0, prompts))
    assert found == intervals.Interval(1.0, 1.0, 1.0)
    late = {"x": [0, 0, 0.0, 0.1], "y": [0, 0, 0.0, 0.1]}
    assert intervals.speedup(row(12.0, late), row(10.0, late)) == intervals.Interval(1.2, None, None)


def test_the_interval_of_the_speedup_holds_its_value_and_the_spread_of_the_prompts():
    rng = np.random.default_rng(7)
    slow = {f"p{i}": [0, 0, n, 0.01 * n] for i, n in enumerate(rng.integers(20, 200, size=48).tolist())}
    gain = {p: float(g) for p, g in zip(slow, rng.uniform(1.0, 3.0, size=48), strict=True)}
    fast = {p: [0, 0, n, t / gain[p]] for p, (_, _, n, t) in slow.items()}
    tokens, seconds = (sum(c[i] for c in fast.values()) for i in (2, 3))
    ratio = intervals.speedup(row(tokens / seconds, fast), row(100.0, slow))
    assert ratio.value == pytest.approx(tokens / seconds / 100)
    assert 1.5 < ratio.low < ratio.value < ratio.high < 2.5


def test_histograms_of_different_length_are_padded():
    assert intervals.pooled_histogram([[7, 1, 0, 8], [3], [], [0, 2]]) == [10, 3, 0, 8]
    assert intervals.pooled_histogram([]) == []


def test_survival_and_conditional():
    histogram = [7, 1, 0, 8]
    assert intervals.survival(histogram) == [9 / 16, 8 / 16, 8 / 16]
    assert 1 + sum(intervals.survival(histogram)) == pytest.approx(1 + 25 / 16)
    assert intervals.conditional(histogram) == [9 / 16, 8 / 9, 1.0]
    # nobody got past the first draft: what comes after is unknown, not zero
    assert intervals.conditional([4, 2, 0, 0]) == [2 / 6, 0.0, None]
    assert intervals.survival([]) == intervals.conditional([]) == []
    assert intervals.survival([5]) == []
