"""Log-sum-exp and argmax of the target's logits, kept and in chunks."""

from __future__ import annotations

import pytest
import torch

from eagle_lab.ops.teacher import function as kernels
from eagle_lab.ops.teacher import reference
from eagle_lab.ops.tolerances import check_close

BOTH = pytest.mark.parametrize("ops", [reference, kernels], ids=["reference", "triton"])


@pytest.fixture(params=[16, 8192], autouse=True)
def small(request, monkeypatch):
    monkeypatch.setattr(kernels, "CHUNK_BYTES", 3 * 41 * 4)
    monkeypatch.setattr(kernels, "BLOCK", request.param)


@BOTH
def test_values(ops, random):
    hidden, weight = random(10, 8).detach(), random(41, 8).detach()
    exact = hidden.double() @ weight.double().T
    found = ops.best(hidden, weight)
    check_close(found.lse, exact.logsumexp(-1), "value")
    assert torch.equal(found.top, exact.argmax(-1))
    drafted = ops.draft_teacher(hidden, weight[:13])
    check_close(drafted.logits, exact[:, :13], "value")
    check_close(drafted.best.lse, exact[:, :13].logsumexp(-1), "value")
    assert torch.equal(drafted.best.top, exact[:, :13].argmax(-1))


@BOTH
def test_the_first_of_equals_is_the_best(ops):
    hidden = torch.tensor([[1.0]])
    weight = torch.tensor([[0.0], [2.0], [1.0], *[[0.0]] * 30, [2.0]])
    assert ops.best(hidden, weight).top.tolist() == [1]


@BOTH
def test_no_rows_and_bad_rows(ops):
    assert ops.best(torch.zeros(0, 8), torch.ones(41, 8)).top.shape == (0,)
    hidden = torch.ones(3, 8)
    hidden[1, 1] = float("nan")
    found = ops.best(hidden, torch.ones(41, 8))
    assert found.lse.isnan().tolist() == [False, True, False]
    assert all(0 <= t < 41 for t in found.top.tolist())
