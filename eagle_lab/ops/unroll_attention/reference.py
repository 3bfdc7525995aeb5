"""Attention of the training-time test: a causal block over the documents' first keys plus i diagonal keys.

At unroll step i, the query of row r (chain started at position t of document b) sees the first-step keys of b at
positions 0..t, and of its own chain the keys of steps 1..i. Softmax runs over all of them together, in fp32.
Source: EAGLE-3 (arXiv 2503.01840); SafeAILab/EAGLE cnets.py, `cache_hidden`.

Layout: documents are packed, T tokens in all; the N rows are the supervised positions only, since no other position's
query is ever needed (its keys and values of step 0 are).
"""

from __future__ import annotations

import torch
from torch import Tensor

from eagle_lab.ops.unroll_attention.layout import Layout


def unroll_attention(q: Tensor, k0: Tensor, v0: Tensor, chain: list[tuple[Tensor, Tensor]], layout: Layout) -> Tensor:
    """Attention output [N, heads, D].

    q [N, heads, D]; k0, v0 [T, kv_heads, D] of step 0; chain: i pairs (k, v), each [N, kv_heads, D], of steps 1..i.
    """
    _, heads, dim = q.shape
    group = heads // k0.shape[1]
    tokens = layout.padded_tokens
    if not q.shape[0]:
        return q.clone()
    rows, back = layout.padded_rows
    batch, queries = rows.shape
    qb = q[rows].view(batch, queries, heads // group, group, dim).permute(0, 2, 3, 1, 4)  # B, KV, G, Q, D
    kb, vb = (x[tokens].permute(0, 2, 1, 3)[:, :, None] for x in (k0, v0))  # B, KV, 1, S, D
    scores = (qb @ kb.transpose(-1, -2)).float() * dim**-0.5
    seen = torch.arange(tokens.shape[1], device=q.device) <= layout.row_pos[rows][..., None]  # B, Q, S
    scores = scores.masked_fill(~seen[:, None, None], float("-inf"))
    if chain:
        kc = torch.stack([k[rows] for k, _ in chain], -2).permute(0, 2, 1, 3, 4)[:, :, None]  # B, KV, 1, Q, i, D
        diagonal = (qb[..., None, :] * kc).sum(-1).float() * dim**-0.5
        scores = torch.cat([scores, diagonal], -1)
    weights = scores.softmax(-1).to(q.dtype)
    out = weights[..., : tokens.shape[1]] @ vb
    if chain:
        vc = torch.stack([v[rows] for _, v in chain], -2).permute(0, 2, 1, 3, 4)[:, :, None]
        out = out + (weights[..., tokens.shape[1] :, None] * vc).sum(-2)
    return out.permute(0, 3, 1, 2, 4).reshape(batch * queries, heads, dim)[back]
