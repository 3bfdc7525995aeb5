"""Loss, gradients, argmax and acceptance of one step against fp64 written out."""

from __future__ import annotations

import torch

from eagle_lab.ops.distill_loss.reference import distill_loss


def inputs(rows=9, hidden=6, vocab=13):
    generator = torch.Generator().manual_seed(3)
    h = torch.randn(rows, hidden, generator=generator).requires_grad_()
    w = torch.randn(vocab, hidden, generator=generator).requires_grad_()
    p = torch.randn(rows, vocab, generator=generator).softmax(-1)
    weight = (torch.arange(rows) % 3 > 0).float()
    return h, w, p, weight


def test_values_and_gradients_against_fp64():
    h, w, p, weight = inputs()
    out = distill_loss(h, w, p, weight)
    q = (h.double() @ w.double().T).softmax(-1)
    wanted = -(weight.double()[:, None] * p.double() * q.log()).sum()
    torch.testing.assert_close(out.loss.double(), wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out.acceptance.double(), torch.minimum(p.double(), q).sum(-1), atol=1e-6, rtol=1e-5)
    assert torch.equal(out.argmax, q.argmax(-1))
    dh, dw = torch.autograd.grad(out.loss, (h, w))
    dlogits = weight.double()[:, None] * (q - p.double())
    torch.testing.assert_close(dh.double(), dlogits @ w.double(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(dw.double(), dlogits.T @ h.double(), atol=1e-5, rtol=1e-4)


def test_unweighted_rows_give_no_gradient_and_no_loss():
    h, w, p, weight = inputs()
    out = distill_loss(h, w, p, weight)
    (dh,) = torch.autograd.grad(out.loss, h)
    assert (dh[weight == 0] == 0).all()
    assert (dh[weight == 1] != 0).any(-1).all()


def test_all_rows_masked_is_zero():
    h, w, p, _ = inputs()
    assert distill_loss(h, w, p, torch.zeros(len(h))).loss == 0
