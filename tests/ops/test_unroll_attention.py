"""The packed row formulation, kernel (interpreted on a CPU) and reference, against a mask written down in fp64."""

from __future__ import annotations

import pytest
import torch

from eagle_lab.ops.launch import Blocks
from eagle_lab.ops.tolerances import check_close
from eagle_lab.ops.unroll_attention import function as kernels
from eagle_lab.ops.unroll_attention import reference
from eagle_lab.ops.unroll_attention.layout import Layout

BOTH = pytest.mark.parametrize("ops", [reference, kernels], ids=["reference", "triton"])
DOCS = [(7, range(3, 6)), (1, range(0, 0)), (12, range(0, 11)), (5, range(4, 5))]
LONG = [(70, range(69)), (33, range(0, 0)), (9, range(8)), (40, [*range(3, 5), *range(20, 39)])]
"""Documents longer than a tile of 16, one that no row is of, and gaps between the rows."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tiles of 16, so that rows and keys make several and every kind of edge occurs."""
    for name in ("LARGE", "SMALL"):
        monkeypatch.setattr(kernels, name, kernels.Tiles(*[Blocks(16, 16)] * 3))
    monkeypatch.setattr(kernels, "CHAIN", Blocks(16, 16))


def layout(docs=DOCS) -> Layout:
    lengths = torch.tensor([n for n, _ in docs])
    start = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    doc = torch.cat([torch.full((len(r),), b) for b, (_, r) in enumerate(docs)])
    pos = torch.cat([torch.tensor(list(r), dtype=torch.int64) for _, r in docs])
    return Layout(start, doc, pos)


def plain(q, k0, v0, chain, where):
    """One row after another: scores over its document's first keys and its own chain."""
    out = []
    group = q.shape[1] // k0.shape[1]
    for row in range(q.shape[0]):
        start = int(where.doc_start[where.row_doc[row]])
        upto = start + int(where.row_pos[row]) + 1
        keys = torch.cat([k0[start:upto], *(k[row : row + 1] for k, _ in chain)]).repeat_interleave(group, 1)
        values = torch.cat([v0[start:upto], *(v[row : row + 1] for _, v in chain)]).repeat_interleave(group, 1)
        weights = torch.einsum("hd,khd->hk", q[row], keys).mul(q.shape[2] ** -0.5).softmax(-1)
        out.append(torch.einsum("hk,khd->hd", weights, values))
    return torch.stack(out)


@BOTH
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize(("docs", "heads", "kv", "dim"), [(DOCS, 4, 4, 8), (DOCS, 6, 2, 20), (LONG, 3, 1, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_and_gradients_equal_plain_attention(ops, steps, docs, heads, kv, dim, dtype, random):
    where = layout(docs)
    total, rows = int(where.doc_start[-1]), where.row_doc.numel()
    q = random(rows, heads, dim, dtype=dtype)
    k0, v0 = (random(total, kv, dim, dtype=dtype) for _ in range(2))
    chain = [(random(rows, kv, dim, dtype=dtype), random(rows, kv, dim, dtype=dtype)) for _ in range(steps)]
    grad = random(rows, heads, dim, dtype=dtype)
    leaves = [q, k0, v0, *(t for pair in chain for t in pair)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    found = ops.unroll_attention(q, k0, v0, chain, where)
    wanted = plain(*wide[:3], list(zip(wide[3::2], wide[4::2], strict=True)), where)
    check_close(found, wanted, "value")
    mine = torch.autograd.grad(found, leaves, grad)
    theirs = torch.autograd.grad(wanted, wide, grad.double())
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        check_close(a, b, "gradient", f"input {i}")


@BOTH
def test_a_document_cannot_see_another(ops):
    where = layout()
    total, rows = int(where.doc_start[-1]), where.row_doc.numel()
    q, k0, v0 = (torch.randn(n, 2, 4) for n in (rows, total, total))
    before = ops.unroll_attention(q, k0, v0, [], where)
    start, end = int(where.doc_start[2]), int(where.doc_start[3])
    k0[start:end], v0[start:end] = 100.0, 100.0
    after = ops.unroll_attention(q, k0, v0, [], where)
    other = where.row_doc != 2
    assert torch.equal(before[other], after[other])
    assert not torch.equal(before[~other], after[~other])


@BOTH
def test_saturated_scores_stay_finite(ops):
    where = layout()
    total, rows = int(where.doc_start[-1]), where.row_doc.numel()
    q = torch.full((rows, 1, 4), 1e4, requires_grad=True)
    k0 = torch.randn(total, 1, 4) * 1e4
    out = ops.unroll_attention(q, k0, torch.ones(total, 1, 4), [(k0[:rows], torch.ones(rows, 1, 4))], where)
    torch.testing.assert_close(out, torch.ones_like(out))
    assert torch.autograd.grad(out.sum(), q)[0].isfinite().all()


@BOTH
def test_no_rows_at_all(ops):
    where = layout([(4, range(0)), (3, range(0))])
    assert ops.unroll_attention(torch.zeros(0, 2, 4), torch.zeros(7, 2, 4), torch.zeros(7, 2, 4), [], where).shape == (
        0,
        2,
        4,
    )


@BOTH
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_reaches_the_rows_that_see_it(ops, bad):
    """And may reach others: a weight of 0 times NaN is NaN."""
    where = layout()
    total, rows = int(where.doc_start[-1]), where.row_doc.numel()
    q, k0, v0 = (torch.randn(n, 1, 4) for n in (rows, total, total))
    token = int(where.doc_start[2]) + 4
    v0[token] = bad
    finite = ops.unroll_attention(q, k0, v0, [], where).isfinite().all(-1).all(-1)
    sees = (where.row_doc == 2) & (where.row_pos >= 4)
    assert not finite[sees].any()


def test_more_keys_than_the_layout_has_tokens_are_refused():
    """The backward kernel would read behind the layout: not a number, a hang or a crash."""
    layout = Layout(torch.tensor([0, 2]), torch.tensor([0, 0]), torch.tensor([0, 1]))
    q, k = torch.ones(2, 1, 4), torch.ones(3, 1, 4)
    with pytest.raises(AssertionError, match="at every token of k0"):
        kernels.unroll_attention(q, k, k, [], layout)
