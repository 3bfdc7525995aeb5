import numpy as np
import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.data.dataset import Dataset, Rows
from eagle_lab.data.vocab_map import VocabMap, build_map, coverage


def dataset(train, holdout=()):
    """Rows of one prompt token (id 9) and these answers."""
    answers = [*train, *holdout]
    lengths = [len(a) + 1 for a in answers]
    tokens = {
        "input_ids": np.concatenate([np.asarray([9, *a], dtype=np.int32) for a in answers]),
        "offsets": np.cumsum([0, *lengths]),
        "answer_start": np.ones(len(answers), dtype=np.int32),
        "flags": np.zeros(len(answers), dtype=np.uint8),
    }
    at = np.arange(len(answers))
    return Dataset(Rows(tokens, at), Rows(tokens, at[: len(train)]), Rows(tokens, at[len(train) :]), {})


def test_most_frequent_train_answer_tokens_ties_to_the_lower_id():
    data = dataset([[5, 5, 5, 7, 7, 3], [3, 8]], holdout=[[1, 1, 1, 1, 1, 1]])
    # counts: 5 three times, 3 and 7 twice, 8 once; 9 is only in prompts, 1 only held out
    assert build_map(data, 2, 10, []).target_ids.tolist() == [3, 5]
    assert build_map(data, 3, 10, []).target_ids.tolist() == [3, 5, 7]
    assert build_map(data, 3, 10, [0]).target_ids.tolist() == [0, 3, 5]


def test_unseen_ids_fill_up_from_below():
    made = build_map(dataset([[5, 7]]), 5, 10, [9])
    assert made.target_ids.tolist() == [0, 1, 5, 7, 9]
    assert made.d2t.tolist() == [0, 0, 3, 4, 5]
    assert made.d2t.dtype == np.int64
    assert np.flatnonzero(made.t2d).tolist() == [0, 1, 5, 7, 9]


def test_a_full_vocabulary_is_the_identity():
    made = build_map(dataset([[5]]), 10, 10, [])
    assert made.t2d.all()
    assert not made.d2t.any()


def test_coverage_is_the_share_of_tokens():
    made = build_map(dataset([[5, 5, 7]]), 2, 10, [])
    assert coverage(made, [5, 5, 7, 1]) == 0.75
    assert coverage(made, np.asarray([], dtype=np.int32)) is None


def test_digest_names_the_map():
    data = dataset([[5, 5, 7]])
    assert build_map(data, 2, 10, []).digest == VocabMap.of(np.asarray([5, 7]), 10).digest
    assert build_map(data, 2, 10, []).digest != build_map(data, 2, 11, []).digest
    assert build_map(data, 2, 10, []).digest != build_map(data, 3, 10, []).digest


@pytest.mark.parametrize(
    ("size", "always", "words"),
    [
        (11, [], "draft.vocab_size=11: the target has 10 tokens"),
        (0, [], "draft.vocab_size=0"),
        (1, [2, 3], "no room"),
        (3, [10], "outside the target's 10"),
    ],
)
def test_impossible_sizes_are_refused(size, always, words):
    with pytest.raises(LabError, match=words):
        build_map(dataset([[5]]), size, 10, always)


def test_a_token_outside_the_target_is_refused():
    with pytest.raises(LabError, match="token id 9"):
        build_map(dataset([[9]]), 2, 8, [])


@pytest.mark.parametrize(
    ("d2t", "t2d", "words"),
    [
        # ids where offsets belong: 2 + 0, 4 + 1
        ([2, 4], [0, 0, 1, 0, 1], "offsets, not ids"),
        ([1, -1], [1, 1, 0, 0, 0], "ascend strictly"),
        ([0, 0], [1, 0, 1, 0, 0], "not the same set"),
        ([0], [1, 1, 0, 0, 0], "not the same set"),
        ([], [0, 0], "ascend strictly"),
    ],
)
def test_a_pair_that_is_no_map_is_refused(d2t, t2d, words):
    with pytest.raises(LabError, match=words):
        VocabMap(np.asarray(d2t, dtype=np.int64), np.asarray(t2d, dtype=bool))


def test_wrong_types_are_refused():
    with pytest.raises(LabError, match="int32"):
        VocabMap(np.zeros(2, dtype=np.int32), np.ones(2, dtype=bool))
