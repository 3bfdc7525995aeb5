"""Attention over a paged KV pool, batched over requests (page size 1).

Shapes: q, o [T, H, D]; k_buffer, v_buffer [slots, HK, D] with H = G * HK (grouped queries); req_to_token [pool rows,
positions] maps a request's positions to slots; seq_lens [B] counts all tokens that the last query of a request sees.

The keys of a chunk of requests are gathered into one padded [n, S, HK, D] tensor and attended to in one call. The G
query heads that share a key head are laid out as G query rows, so keys are never repeated per head: 2 to 5 times faster
than repeat_interleave for 1 to 17 query tokens (16 requests, 200 positions, 9 / 3 heads of 64, two cores).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

# gathered keys and values of one call. 4 MB stay in the L2 and L3 caches between the copy and the attention: 32
# requests of 300 positions took 1.9 ms in chunks of 4 MB and 3.6 ms at once (per layer, two cores)
CHUNK_BYTES = 4 << 20


def decode_attention_cpu(
    q: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    _k_scale: float,
    _v_scale: float,
    o: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    loc: Tensor,
    _attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    scale: float,
    logit_cap: float,
    is_cross: bool,
    window: int,
    _encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """One query per row: stores k, v [B, HK, D] at slots `loc` [B] (when given), then writes o [B, H, D]."""
    _refuse(k_buffer, logit_cap, is_cross, window, sinks)
    if k is not None and v is not None:
        k_buffer.index_copy_(0, loc, k.view(-1, *k_buffer.shape[1:]))
        v_buffer.index_copy_(0, loc, v.view(-1, *v_buffer.shape[1:]))
    heads, dim = q.shape[1:]
    for rows, keys, values in _chunks(k_buffer, v_buffer, req_to_token, req_pool_indices, seq_lens):
        width = keys.shape[2]
        seen = torch.arange(width) < seq_lens[rows, None]
        grouped = q[rows].view(-1, k_buffer.shape[1], heads // k_buffer.shape[1], dim)
        out = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=seen[:, None, None], scale=scale)
        o[rows] = out.view(-1, heads, o.shape[2])


def extend_attention_cpu(
    q: Tensor,
    _k: Tensor,
    _v: Tensor,
    o: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    _k_scale: float,
    _v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_lens: Tensor,
    extend_start: Tensor,
    max_extend: int,
    scale: float,
    logit_cap: float,
    is_cross: bool,
    window: int,
    _encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool = True,
) -> None:
    """The last extend_lens[b] tokens of each request attend to its seq_lens[b] tokens; writes o [T, H, D].

    Keys and values are in the pool already. tree_mask: flat bool, extend x extend per request, replaces the causal rule
    among the new tokens; those before them are always seen.
    """
    _refuse(k_buffer, logit_cap, is_cross, window, sinks)
    batch = seq_lens.numel()
    if not batch:
        return
    uniform = q.shape[0] == batch * max_extend
    if not is_causal or (tree_mask is not None and not uniform):
        raise NotImplementedError("attention to later tokens, and trees of different sizes in one batch")
    if uniform and max_extend <= 64:
        _verify(q, o, k_buffer, v_buffer, req_to_token, req_pool_indices, seq_lens, max_extend, scale, tree_mask)
        return
    # prompts: long and of different lengths, one call each beats padding
    spans = zip(extend_start.tolist(), extend_lens.tolist(), seq_lens.tolist(), req_pool_indices.tolist(), strict=True)
    for start, new, length, row in spans:
        slots = req_to_token[row, :length]
        keys = k_buffer.index_select(0, slots).transpose(0, 1)[None]
        values = v_buffer.index_select(0, slots).transpose(0, 1)[None]
        queries = q[start : start + new].transpose(0, 1)[None]
        mask = None if new == length else torch.ones(new, length, dtype=torch.bool).tril(length - new)
        out = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
        )
        o[start : start + new] = out[0].transpose(0, 1)


def _verify(
    q: Tensor,
    o: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    new: int,
    scale: float,
    tree_mask: Tensor | None,
) -> None:
    """The same number of new tokens, `new`, in every request: verification and the head's catch-up."""
    batch, (heads, dim), kv_heads = seq_lens.numel(), q.shape[1:], k_buffer.shape[1]
    group = heads // kv_heads
    queries, outputs = q.view(batch, new, heads, dim), o.view(batch, new, heads, -1)
    trees = tree_mask.view(-1, new, new) if tree_mask is not None else torch.ones(1, new, new, dtype=torch.bool).tril()
    trees = trees.expand(batch, new, new) if trees.shape[0] == 1 else trees
    for rows, keys, values in _chunks(k_buffer, v_buffer, req_to_token, req_pool_indices, seq_lens):
        n, width = keys.shape[0], keys.shape[2]
        # position among the new tokens: negative for those before them, new or more for the padding
        at = (torch.arange(width) - (seq_lens[rows, None] - new))[:, None]
        among = trees[rows].gather(2, at.clamp(0, new - 1).expand(n, new, width))
        seen = (at < 0) | ((at < new) & among)
        grouped = queries[rows].view(n, new, kv_heads, group, dim).transpose(1, 2).reshape(n, kv_heads, -1, dim)
        mask = seen.repeat_interleave(group, 1)[:, None]
        out = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scale)
        outputs[rows] = out.view(n, kv_heads, new, group, -1).transpose(1, 2).reshape(n, new, heads, -1)


def _chunks(
    k_buffer: Tensor, v_buffer: Tensor, req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor
) -> Iterator[tuple[slice | Tensor, Tensor, Tensor]]:
    """(rows of the batch, keys, values [n, HK, S, D]) with S the longest of the chunk; longest requests first."""
    lengths = seq_lens.tolist()
    if not lengths:
        return
    slot_bytes = 2 * k_buffer.stride(0) * k_buffer.element_size()
    widest = max(lengths)
    if len(lengths) * widest * slot_bytes <= CHUNK_BYTES:
        yield slice(None), *_gathered(k_buffer, v_buffer, req_to_token[req_pool_indices, :widest])
        return
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(order):
        width = lengths[order[start]]
        rows = torch.tensor(order[start : start + max(1, CHUNK_BYTES // (width * slot_bytes))])
        yield rows, *_gathered(k_buffer, v_buffer, req_to_token[req_pool_indices[rows], :width])
        start += len(rows)


def _gathered(k_buffer: Tensor, v_buffer: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    n, width = slots.shape
    flat = slots.reshape(-1)
    keys = k_buffer.index_select(0, flat).view(n, width, *k_buffer.shape[1:])
    values = v_buffer.index_select(0, flat).view(n, width, *v_buffer.shape[1:])
    return keys.transpose(1, 2), values.transpose(1, 2)


def _refuse(k_buffer: Tensor, logit_cap: float, is_cross: bool, window: int, sinks: Tensor | None) -> None:
    """Raises NotImplementedError for what these operators do not compute, rather than computing something else."""
    asked = {
        "cross attention": is_cross,
        "a logit cap": bool(logit_cap),
        "a sliding window": window > 0,
        "attention sinks": sinks is not None,
        f"a {k_buffer.dtype} KV cache": not k_buffer.dtype.is_floating_point or k_buffer.element_size() < 2,
    }
    if any(asked.values()):
        raise NotImplementedError(f"server=cpu has no {', '.join(k for k, v in asked.items() if v)}; use server=gpu")
