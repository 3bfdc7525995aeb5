"""The packed row formulation against plain attention with a mask written down position by position, in fp64."""

from __future__ import annotations

import pytest
import torch

from eagle_lab.ops.unroll_attention.reference import Layout, unroll_attention

DOCS = [(7, range(3, 6)), (1, range(0, 0)), (12, range(0, 11)), (5, range(4, 5))]


def layout() -> Layout:
    lengths = torch.tensor([n for n, _ in DOCS])
    start = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    doc = torch.cat([torch.full((len(r),), b) for b, (_, r) in enumerate(DOCS)])
    pos = torch.cat([torch.tensor(list(r), dtype=torch.int64) for _, r in DOCS])
    return Layout(start, doc, pos)


def plain(q, k0, v0, chain, where):
    """One row after another: scores over its document's first keys and its own chain."""
    out = torch.empty_like(q)
    group = q.shape[1] // k0.shape[1]
    for row in range(q.shape[0]):
        start = int(where.doc_start[where.row_doc[row]])
        upto = start + int(where.row_pos[row]) + 1
        keys = torch.cat([k0[start:upto], *(k[row : row + 1] for k, _ in chain)]).repeat_interleave(group, 1)
        values = torch.cat([v0[start:upto], *(v[row : row + 1] for _, v in chain)]).repeat_interleave(group, 1)
        weights = torch.einsum("hd,khd->hk", q[row], keys).mul(q.shape[2] ** -0.5).softmax(-1)
        out[row] = torch.einsum("hk,khd->hd", weights, values)
    return out


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize(("heads", "kv"), [(4, 4), (6, 2), (3, 1)])
def test_values_and_gradients_equal_plain_attention(steps, heads, kv):
    where = layout()
    total, rows, dim = int(where.doc_start[-1]), where.row_doc.numel(), 8
    generator = torch.Generator().manual_seed(steps)

    def tensor(*shape):
        return torch.randn(*shape, generator=generator).double().requires_grad_()

    q, k0, v0 = tensor(rows, heads, dim), tensor(total, kv, dim), tensor(total, kv, dim)
    chain = [(tensor(rows, kv, dim), tensor(rows, kv, dim)) for _ in range(steps)]
    leaves = [q, k0, v0, *(t for pair in chain for t in pair)]
    grad = torch.randn(rows, heads, dim, generator=generator).double()
    ours, wanted = unroll_attention(q, k0, v0, chain, where), plain(q, k0, v0, chain, where)
    # the op's softmax runs in fp32 by contract, the plain one in fp64: fp32 rounding of values of order 1
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-5)
    mine = torch.autograd.grad(ours, leaves, grad)
    theirs = torch.autograd.grad(wanted, leaves, grad)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_a_document_cannot_see_another():
    where = layout()
    total, rows = int(where.doc_start[-1]), where.row_doc.numel()
    q, k0, v0 = (torch.randn(n, 2, 4) for n in (rows, total, total))
    before = unroll_attention(q, k0, v0, [], where)
    start, end = int(where.doc_start[2]), int(where.doc_start[3])
    k0[start:end], v0[start:end] = 100.0, 100.0
    after = unroll_attention(q, k0, v0, [], where)
    other = where.row_doc != 2
    assert torch.equal(before[other], after[other])
    assert not torch.equal(before[~other], after[~other])


def test_saturated_scores_stay_finite():
    where = layout()
    total, rows = int(where.doc_start[-1]), where.row_doc.numel()
    q = torch.full((rows, 1, 4), 1e4)
    k0 = torch.randn(total, 1, 4) * 1e4
    out = unroll_attention(q, k0, torch.ones(total, 1, 4), [(k0[:rows], torch.ones(rows, 1, 4))], where)
    torch.testing.assert_close(out, torch.ones_like(out))
