import pytest

from eagle_lab.evaluate.lossless import differences, divergence


def row(prompt, tokens, turn=0):
    return {"prompt": prompt, "turn": turn, "token_ids": tokens}


def test_equal_answers():
    rows = [row("a", [1, 2]), row("a", [3], turn=1), row("b", [])]
    assert differences(rows, list(reversed(rows))) == []


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [([1, 2, 3], [1, 9, 3], (1, 2, 9)), ([1, 2], [1], (1, 2, None)), ([], [4], (0, None, 4)), ([5], [5], None)],
)
def test_divergence(a, b, found):
    assert divergence(a, b) == found


def test_a_prompt_is_named_once_with_its_first_turn():
    baseline = [row("a", [1]), row("b", [1, 2]), row("b", [3], turn=1)]
    found = [row("a", [1]), row("b", [1, 7]), row("b", [8], turn=1)]
    assert differences(baseline, found) == [{"prompt": "b", "turn": 0, "position": 1, "expected": 2, "found": 7}]


def test_what_stands_behind_the_end_of_the_turn_is_no_other_answer():
    ended = row("a", [1, 2]) | {"finish_reason": "stop"}
    beyond = row("a", [1, 2, 9, 9]) | {"finish_reason": "length"}
    assert differences([ended], [beyond], num_draft_tokens=2) == []
    assert differences([ended], [beyond], num_draft_tokens=1), "more than one round can add"
    assert differences([ended], [beyond | {"finish_reason": "stop"}], num_draft_tokens=2)
    assert differences([ended], [beyond | {"token_ids": [1, 3, 9, 9]}], num_draft_tokens=2)


def test_other_turns_are_refused():
    with pytest.raises(ValueError, match="same turns"):
        differences([row("a", [1])], [row("a", [1]), row("a", [1], turn=1)])
