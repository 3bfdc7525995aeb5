"""Attention of the training-time test: a causal block over the documents' first keys plus i diagonal keys.

At unroll step i, the query of row r (chain started at position t of document b) sees the first-step keys of b at
positions 0..t, and of its own chain the keys of steps 1..i. Softmax runs over all of them together, in fp32.
Source: EAGLE-3 (arXiv 2503.01840); SafeAILab/EAGLE cnets.py, `cache_hidden`.

Layout: documents are packed, T tokens in all; the N rows are the supervised positions only, since no other position's
query is ever needed (its keys and values of step 0 are).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where documents and rows are. All tensors are int64 on the compute device.

    doc_start [B + 1]: document b holds tokens doc_start[b] .. doc_start[b+1] - 1 of the packed batch.
    row_doc [N], row_pos [N]: document and position in it of each row; rows are sorted by document, then position.
    """

    doc_start: Tensor
    row_doc: Tensor
    row_pos: Tensor

    def padded_tokens(self) -> Tensor:
        """[B, S] index into the packed tokens; entries past a document's end repeat its last token."""
        lengths = self.doc_start.diff()
        at = torch.arange(int(lengths.max()), device=lengths.device)
        return self.doc_start[:-1, None] + torch.minimum(at[None], lengths[:, None] - 1)

    def padded_rows(self) -> tuple[Tensor, Tensor]:
        """[B, Q] index into the rows (0 where there is none) and [N] flat index back into B * Q."""
        counts = torch.bincount(self.row_doc, minlength=self.doc_start.numel() - 1)
        first = counts.cumsum(0) - counts
        width = int(counts.max())
        at = torch.arange(width, device=counts.device)
        index = torch.where(at[None] < counts[:, None], first[:, None] + at[None], 0)
        back = self.row_doc * width + torch.arange(self.row_doc.numel(), device=counts.device) - first[self.row_doc]
        return index, back


def unroll_attention(q: Tensor, k0: Tensor, v0: Tensor, chain: list[tuple[Tensor, Tensor]], layout: Layout) -> Tensor:
    """Attention output [N, heads, D].

    q [N, heads, D]; k0, v0 [T, kv_heads, D] of step 0; chain: i pairs (k, v), each [N, kv_heads, D], of steps 1..i.
    """
    _, heads, dim = q.shape
    group = heads // k0.shape[1]
    tokens = layout.padded_tokens()
    if not q.shape[0]:
        return q.clone()
    rows, back = layout.padded_rows()
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
