"""The distillation head: kernel (interpreted on a CPU) and reference against fp64 written out."""

from __future__ import annotations

import pytest
import torch

from eagle_lab.ops.distill_loss import function as kernels
from eagle_lab.ops.distill_loss import reference
from eagle_lab.ops.distill_loss.losses import KINDS, LEAST_ACCEPTANCE, Objective
from eagle_lab.ops.tolerances import check_close

BOTH = pytest.mark.parametrize("ops", [reference, kernels], ids=["reference", "triton"])
STEPS, ROWS, HIDDEN, VOCAB = 3, 11, 6, 37


@pytest.fixture(params=["whole rows", "tiles"], autouse=True)
def small(request, monkeypatch):
    """Chunks of 4 rows; rows that a program holds at once, and rows in tiles with a tail."""
    monkeypatch.setattr(kernels, "CHUNK_BYTES", 4 * VOCAB * 4)
    monkeypatch.setattr(kernels, "BLOCK", 64 if request.param == "whole rows" else 16)


class Case:
    """Two documents, of 7 and 4 rows; the first row and two more weigh nothing."""

    def __init__(self, random, dtype=torch.float32, charged=False, scale=1.0):
        self.hiddens = [random(ROWS, HIDDEN, dtype=dtype, scale=scale) for _ in range(STEPS)]
        self.weight = random(VOCAB, HIDDEN, dtype=dtype)
        self.logits = random(ROWS, VOCAB, dtype=dtype, scale=2).detach()
        self.lse = self.logits.float().logsumexp(-1) + (0.4 if charged else 0.0)
        self.label = self.logits.float().argmax(-1)
        self.left = torch.tensor([7, 6, 5, 4, 3, 2, 1, 4, 3, 2, 1])
        self.row_weight = torch.rand(STEPS, ROWS)
        self.row_weight[:, [0, 3, 8]] = 0.0

    def run(self, ops, objective):
        teacher = (self.logits, self.lse, self.label)
        return ops.distill_loss(self.hiddens, self.weight, *teacher, self.row_weight, self.left, objective)

    def exact(self, objective, hiddens, weight):
        """(total, loss, argmax, acceptance) in fp64, row by row."""
        loss, overlap = torch.zeros(STEPS, ROWS).double(), torch.zeros(STEPS, ROWS).double()
        argmax = torch.zeros(STEPS, ROWS, dtype=torch.int64)
        total = 0.0
        for step in range(STEPS):
            for row in range(ROWS):
                if self.left[row] <= step:
                    continue
                q = (hiddens[step][row] @ weight.T).log_softmax(-1)
                at = row + step
                p = (self.logits[at].double() - self.lse[at].double()).exp()
                a = torch.minimum(p, q.exp()).sum()
                kl = (p * (p.log() - q)).sum()
                w = objective.kl_scale * torch.exp(-objective.kl_decay * a.detach())
                paid = {
                    "soft_ce": -(p * q).sum(),
                    "kl": kl,
                    "lk_alpha": -a.clamp(min=LEAST_ACCEPTANCE).log(),
                    "lk_lambda": w * kl + (1 - w) * (1 - a),
                    "hard": -q[self.label[at]],
                }[objective.kind]
                total = total + self.row_weight[step, row].double() * paid
                loss[step, row], overlap[step, row], argmax[step, row] = paid.detach(), a.detach(), q.argmax()
        return total, loss, argmax, overlap


@BOTH
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("charged", [False, True], ids=["renormalised", "charged"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_and_gradients(ops, kind, charged, dtype, random):
    case, objective = Case(random, dtype, charged), Objective(kind, kl_scale=0.9, kl_decay=2.0)
    inputs = [*case.hiddens, case.weight]
    found = case.run(ops, objective)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    total, loss, argmax, overlap = case.exact(objective, wide[:-1], wide[-1])
    if dtype is torch.bfloat16:  # the logits are rounded, and by the interpreter truncated: few bits are left
        assert abs(float(found.total) - float(total)) <= 0.03 * abs(float(total)) + 0.05
        mine = torch.autograd.grad(found.total, inputs)
        theirs = torch.autograd.grad(total, wide)
        for a, b in zip(mine, theirs, strict=True):
            assert (a.double() - b).square().mean().sqrt() <= 0.06 * b.square().mean().sqrt()
        return
    check_close(found.total, total, "value", "total")
    check_close(found.loss, loss, "value", "loss")
    check_close(found.acceptance, overlap, "value", "acceptance")
    assert torch.equal(found.argmax, argmax)
    mine, theirs = torch.autograd.grad(3 * found.total, inputs), torch.autograd.grad(3 * total, wide)
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        check_close(a, b, "gradient", f"input {i}")


@BOTH
def test_rows_that_weigh_nothing_are_counted_and_teach_nothing(ops, random):
    case = Case(random)
    found = case.run(ops, Objective())
    d_hidden = torch.autograd.grad(found.total, case.hiddens)
    for step, gradient in enumerate(d_hidden):
        silent = (case.row_weight[step] == 0) | (case.left <= step)
        assert (gradient[silent] == 0).all()
        assert (gradient[~silent] != 0).any(-1).all()
    assert (found.loss[0] > 0).all()
    assert (found.acceptance[0] > 0).all()
    assert (found.loss[2][case.left <= 2] == 0).all()


@BOTH
def test_all_rows_masked_and_no_rows_at_all(ops, random):
    case = Case(random)
    case.row_weight.zero_()
    found = case.run(ops, Objective())
    assert found.total == 0
    assert all((g == 0).all() for g in torch.autograd.grad(found.total, [*case.hiddens, case.weight]))
    nothing = (torch.zeros(0, VOCAB), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    left, hidden = torch.zeros(0, dtype=torch.int64), torch.zeros(0, HIDDEN, requires_grad=True)
    empty = ops.distill_loss([hidden], case.weight, *nothing, torch.zeros(1, 0), left, Objective())
    assert empty.total == 0
    assert empty.argmax.shape == (1, 0)
    assert (torch.autograd.grad(empty.total, case.weight, allow_unused=True)[0] == 0).all()


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_saturated_rows_stay_finite(ops, kind, random):
    """Logits of hundreds: nearly all of q underflows, and where it misses p the acceptance is 0."""
    case = Case(random, scale=300.0)
    found = case.run(ops, Objective(kind))
    assert found.total.isfinite()
    for gradient in torch.autograd.grad(found.total, [*case.hiddens, case.weight]):
        assert gradient.isfinite().all()


@BOTH
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_shows_in_its_row_and_the_total(ops, kind, bad, random):
    case = Case(random)
    with torch.no_grad():
        case.hiddens[1][4, 2] = bad
    found = case.run(ops, Objective(kind))
    assert not found.total.isfinite()
    assert not found.loss[1, 4].isfinite()
    assert found.loss[0].isfinite().all()
    assert found.loss[1][torch.arange(ROWS) != 4].isfinite().all()


def test_without_a_gradient_only_the_numbers_are_made(random):
    case = Case(random)
    with torch.no_grad():
        found = case.run(kernels, Objective())
    wanted = case.run(reference, Objective())
    torch.testing.assert_close(found.loss, wanted.loss)
    assert torch.equal(found.argmax, wanted.argmax)
    assert not found.total.requires_grad


def test_a_second_backward_is_refused(random):
    case = Case(random)
    total = case.run(kernels, Objective()).total
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="its backward has run already"):
        total.backward()


def test_fp32_weights_with_bf16_states_get_fp32_gradients(random):
    """As in bf16-mixed training: the products are bf16, their sum over steps and chunks is not rounded."""
    case = Case(random, torch.bfloat16)
    case.weight = random(VOCAB, HIDDEN)
    gradient = torch.autograd.grad(case.run(kernels, Objective()).total, case.weight)[0]
    assert gradient.dtype == torch.float32
    wanted = torch.autograd.grad(case.run(reference, Objective()).total, case.weight)[0]
    assert (gradient - wanted).square().mean().sqrt() <= 0.03 * wanted.square().mean().sqrt()


def test_hidden_states_that_are_frozen(random):
    case = Case(random)
    case.hiddens = [h.detach() for h in case.hiddens]
    found, wanted = (torch.autograd.grad(case.run(o, Objective()).total, case.weight)[0] for o in (kernels, reference))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["lse", "label", "left"])
def test_a_column_of_a_larger_tensor(random, name):
    case = Case(random)
    objective = Objective("hard" if name == "label" else "soft_ce")
    wanted = case.run(kernels, objective).total
    column = getattr(case, name)
    setattr(case, name, torch.stack([column, torch.zeros_like(column)], 1)[:, 0])
    torch.testing.assert_close(case.run(kernels, objective).total, wanted)
