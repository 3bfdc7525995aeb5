"""Bookkeeping of KV slots and token ids between the rounds of speculation; all in place, all batched.

req_to_token [pool rows, positions] maps a request's positions to slots of the KV pool; req_pool_indices [B] names each
request's row.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def _ragged(rows: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """(row, column) of every position start[b]..end[b]-1 of every request, flat, in request order."""
    counts = (end - start).long()
    first = counts.cumsum(0) - counts
    columns = torch.arange(int(counts.sum())) + (start - first).repeat_interleave(counts)
    return rows.long().repeat_interleave(counts), columns


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, out_cache_loc: Tensor, _pool_len: int
) -> None:
    """Writes the slots out_cache_loc [sum of lengths] to positions start..end of each request."""
    row, column = _ragged(req_pool_indices, start, end)
    req_to_token[row, column] = out_cache_loc[: row.numel()].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, out_cache_loc: Tensor, _pool_len: int
) -> None:
    """Reads the slots of positions start..end of each request into the head of out_cache_loc."""
    row, column = _ragged(req_pool_indices, start, end)
    out_cache_loc[: row.numel()] = req_to_token[row, column].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Reads the topk * num_steps slots after each request's committed tokens: where the draft tree is written."""
    end = seq_lens + topk * num_steps
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, seq_lens, end, out_cache_loc, pool_len)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """req_to_token [B * topk, pool_len] in which every branch of the tree is a request of its own.

    Branch t sees the request's committed tokens, then its own num_steps slots, which follow those of branch t - 1.
    """
    batch = req_pool_indices.numel()
    table = torch.zeros(batch, topk, pool_len, dtype=req_to_token.dtype)
    if batch:
        committed = int(seq_lens.max())
        table[:, :, :committed] = req_to_token[req_pool_indices, :committed][:, None]
        step, branch = torch.arange(num_steps), torch.arange(topk)
        own = seq_lens[:, None, None] + step  # [B, 1, steps]
        slot = req_to_token[req_pool_indices[:, None, None], own + branch[:, None] * num_steps]
        table.scatter_(2, own.expand(batch, topk, num_steps), slot)
    return table.view(batch * topk, pool_len)


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, target: Tensor, source: Tensor) -> None:
    """Copies slots source -> target [n] in every buffer, given by address and bytes per slot; they may overlap."""
    if not target.numel():
        return
    rows = 1 + max(int(target.max()), int(source.max()))
    for pointer, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * stride)).from_address(pointer)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(rows, stride)
        buffer[target] = buffer[source]


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accepted: Tensor) -> None:
    """Packs the slots of the accepted rows (accept_index > -1) to the head of `accepted`."""
    flat = accept_index.flatten()
    kept = flat[flat > -1].long()
    accepted[: kept.numel()] = out_cache_loc[kept]


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, stride: int) -> None:
    """The last accepted token of each request; accept_tokens is flat, `stride` per request, accept_lens >= 1."""
    batch = accept_lens.numel()
    last = torch.arange(batch) * stride + accept_lens.long() - 1
    bonus_tokens[:batch] = accept_tokens.flatten()[last].to(bonus_tokens.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor, start: Tensor, lens: Tensor, new_tokens: Tensor, select_index: Tensor | None = None
) -> None:
    """Shifts each request's ids left by one and appends its new token (at select_index[b] when given)."""
    for b, (first, count) in enumerate(zip(start.tolist(), lens.tolist(), strict=True)):
        if count <= 0:
            continue
        input_ids[first : first + count - 1] = input_ids[first + 1 : first + count].clone()
        at = first + count - 1 if select_index is None else int(select_index[b])
        input_ids[at] = new_tokens.flatten()[b].to(input_ids.dtype)
