"""Slot bookkeeping against loops over requests and positions."""

from __future__ import annotations

import pytest
import torch
from sgl_kernel import kv_slots


@pytest.fixture
def table() -> torch.Tensor:
    return torch.arange(6 * 40, dtype=torch.int32).view(6, 40) + 1000


ROWS = torch.tensor([4, 0, 2])


def test_assign_and_read_back(table):
    start, end = torch.tensor([3, 0, 7]), torch.tensor([5, 0, 11])
    slots = torch.arange(6, dtype=torch.int64) + 7
    before = table.clone()
    kv_slots.assign_req_to_token_pool_cpu(ROWS, table, start, end, slots, 40)
    assert table[4, 3:5].tolist() == [7, 8]
    assert table[2, 7:11].tolist() == [9, 10, 11, 12]
    assert int((table != before).sum()) == 6
    out = torch.full((8,), -1)
    kv_slots.assign_extend_cache_locs_cpu(ROWS, table, start, end, out, 40)
    assert out.tolist() == [7, 8, 9, 10, 11, 12, -1, -1]


def test_draft_slots_follow_the_committed_tokens(table):
    out = torch.empty(3 * 4, dtype=torch.int64)
    kv_slots.assign_draft_cache_locs_contiguous_cpu(ROWS, table, torch.tensor([1, 5, 9]), out, 40, 2, 2)
    assert out.tolist() == [*range(1161, 1165), *range(1005, 1009), *range(1089, 1093)]


def test_every_branch_becomes_a_request(table):
    lens, topk, steps = torch.tensor([3, 8, 1]), 3, 2
    found = kv_slots.build_draft_decode_metadata_cpu(table, ROWS, lens, topk, steps, 40)
    assert found.shape == (9, 40)
    for b, (row, n) in enumerate(zip(ROWS.tolist(), lens.tolist(), strict=True)):
        for t in range(topk):
            own = table[row, n + t * steps : n + (t + 1) * steps]
            assert torch.equal(found[b * topk + t, : n + steps], torch.cat([table[row, :n], own]))
    # padding is gathered and masked by the attention: it must be a slot that exists
    assert int(found.min()) == 0


def test_copies_in_every_buffer_may_overlap():
    buffers = [torch.randn(9, 4), torch.randn(9, 2, 3)]
    was = [b.clone() for b in buffers]
    pointers = torch.tensor([b.data_ptr() for b in buffers], dtype=torch.uint64)
    strides = torch.tensor([b[0].nbytes for b in buffers])
    kv_slots.copy_all_layer_kv_cache_cpu(pointers, strides, torch.tensor([1, 2, 8]), torch.tensor([2, 3, 1]))
    for new, old in zip(buffers, was, strict=True):
        assert torch.equal(new[[1, 2, 8]], old[[2, 3, 1]])
        assert torch.equal(new[[0, 3, 4, 5, 6, 7]], old[[0, 3, 4, 5, 6, 7]])
    kv_slots.copy_all_layer_kv_cache_cpu(pointers, strides, torch.tensor([], dtype=torch.long), torch.tensor([]))


def test_accepted_slots_are_packed():
    out = torch.zeros(6, dtype=torch.int64)
    index = torch.tensor([[0, 2, -1], [3, -1, -1]], dtype=torch.int32)
    kv_slots.fill_accept_out_cache_loc_cpu(index, torch.arange(100, 106), out)
    assert out.tolist() == [100, 102, 103, 0, 0, 0]


def test_bonus_token_is_the_last_accepted_one():
    bonus = torch.zeros(2, dtype=torch.int32)
    kv_slots.fill_bonus_tokens_cpu(torch.tensor([5, 6, 0, 7, 0, 0]), torch.tensor([2, 1]), bonus, 3)
    assert bonus.tolist() == [6, 7]


@pytest.mark.parametrize(("select", "wanted"), [(None, [2, 3, 8, 5, 9]), (torch.tensor([1, 3]), [2, 8, 3, 9, 5])])
def test_rotation(select, wanted):
    ids = torch.tensor([1, 2, 3, 4, 5])
    kv_slots.rotate_input_ids_cpu(ids, torch.tensor([0, 3]), torch.tensor([3, 2]), torch.tensor([[8], [9]]), select)
    assert ids.tolist() == wanted


def test_an_empty_batch_is_nothing(table):
    none = torch.tensor([], dtype=torch.int64)
    kv_slots.assign_req_to_token_pool_cpu(none, table, none, none, none, 40)
    kv_slots.assign_extend_cache_locs_cpu(none, table, none, none, none, 40)
    assert kv_slots.build_draft_decode_metadata_cpu(table, none, none, 2, 3, 40).shape == (0, 40)
