from __future__ import annotations

import numpy as np
import torch

from eagle_lab.data.dataset import Row
from eagle_lab.train.feed import Cached, Feed, Online, supervised
from tests.train.conftest import dataset_of

CPU = torch.device("cpu")


def test_training_starts_where_serving_starts_its_first_draft():
    # prompt x0..x3, answer x4..x8: after prefill the server drafts from t = 3 (aux of x3, embedding of x4)
    cut = Row(np.arange(9, dtype=np.int32), answer_start=4, ends_with_eos=False)
    assert list(supervised(cut)) == [3, 4, 5, 6, 7]
    # an answer that ends the turn has no teacher after its last token
    ended = Row(np.arange(9, dtype=np.int32), answer_start=4, ends_with_eos=True)
    assert list(supervised(ended)) == [3, 4, 5, 6]
    assert list(supervised(Row(np.arange(5, dtype=np.int32), 4, True))) == []


def test_teacher_rows_are_the_target_after_the_next_token(target, dataset):
    batch = Feed(dataset.rows, Online(target, dataset.rows, CPU), CPU).batch([0, 3])
    first = dataset.rows[0]
    ids = torch.from_numpy(first.input_ids.astype(np.int64))[None]
    states = target.capture(ids)
    spans = [supervised(dataset.rows[i]) for i in (0, 3)]
    for row, t in enumerate(spans[0]):
        torch.testing.assert_close(batch.teacher_hidden[row], states.last[0, t + 1])
        assert batch.teacher_top[row] == (states.last[0, t + 1] @ target.lm_head_weight.T).argmax()
        assert batch.input_ids[batch.layout.row_token[row]] == first.input_ids[t]
        assert batch.steps_left[row] == len(spans[0]) - row
    assert batch.layout.row_doc.tolist() == [0] * len(spans[0]) + [1] * len(spans[1])
    torch.testing.assert_close(batch.aux[: len(first.input_ids)], states.aux[0])


def test_a_document_packs_the_same_alone_and_among_others(target, dataset):
    feed = Feed(dataset.rows, Online(target, dataset.rows, CPU), CPU)
    alone, among = feed.batch([5]), feed.batch([2, 5, 9])
    mine = among.layout.row_doc == 1
    torch.testing.assert_close(among.teacher_hidden[mine], alone.teacher_hidden)
    assert torch.equal(among.steps_left[mine], alone.steps_left)


def test_cached_states_are_captured_once(target, dataset):
    feed = Feed(dataset.rows, Cached(Online(target, dataset.rows, CPU)), CPU)
    first = feed.batch([1, 2, 3])
    again = feed.batch([3, 1])
    assert target.captured == 3
    torch.testing.assert_close(
        again.aux[: len(dataset.rows[3].input_ids)], first.aux[-len(dataset.rows[3].input_ids) :]
    )


def test_a_row_without_a_supervised_position_adds_none(target):
    data = dataset_of([(4, 1), (3, 6)], holdout=0)  # row 0: the answer is the end of the turn alone
    batch = Feed(data.rows, Online(target, data.rows, CPU), CPU).batch([0, 1])
    assert batch.layout.row_doc.tolist() == [1] * 6
