"""RMSNorm alone, after a sum, and in pairs: kernel (interpreted on a CPU) and reference against fp64."""

from __future__ import annotations

import pytest
import torch

from eagle_lab.ops.rms_norm import function as kernels
from eagle_lab.ops.rms_norm import reference
from eagle_lab.ops.tolerances import check_close

BOTH = pytest.mark.parametrize("ops", [reference, kernels], ids=["reference", "triton"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
EPS = 1e-5


def exact(x, w):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def wide(*tensors):
    return [t.detach().double().requires_grad_() for t in tensors]


def check_gradients(found, wanted, inputs, exact_inputs, grads):
    mine = torch.autograd.grad(found, inputs, grads)
    theirs = torch.autograd.grad(wanted, exact_inputs, [g.double() for g in grads])
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        check_close(a, b, "gradient", f"input {i}")


@BOTH
@DTYPES
@pytest.mark.parametrize("shape", [(1, 3), (17, 33), (2, 3, 64), (40, 577)])
def test_alone(ops, dtype, shape, random):
    x, w, g = random(*shape, dtype=dtype, scale=3), random(shape[-1], dtype=dtype), random(*shape, dtype=dtype)
    inputs = wide(x, w)
    y, wanted = ops.rms_norm(x, w, EPS), exact(*inputs)
    check_close(y, wanted, "value")
    check_gradients([y], [wanted], [x, w], inputs, [g])


@BOTH
@DTYPES
def test_after_a_sum(ops, dtype, random):
    """Both results are used again, so both bring a gradient."""
    x, residual, g, g_sum = (random(21, 70, dtype=dtype) for _ in range(4))
    w = random(70, dtype=dtype)
    inputs = wide(x, residual, w)
    # in bf16 the sum is rounded before it is normed
    rounded = (inputs[0] + inputs[1]) + ((x + residual).double() - inputs[0] - inputs[1]).detach()
    wanted = [rounded, exact(rounded, inputs[2])]
    found = list(ops.add_rms_norm(x, residual, w, EPS))
    for a, b in zip(found, wanted, strict=True):
        check_close(a, b, "value")
    check_gradients(found, wanted, [x, residual, w], inputs, [g_sum, g])


@BOTH
@DTYPES
def test_in_pairs(ops, dtype, random):
    a, b, g = random(19, 40, dtype=dtype), random(19, 40, dtype=dtype, scale=5), random(19, 80, dtype=dtype)
    weights = [random(40, dtype=dtype) for _ in range(2)]
    inputs = wide(a, b, *weights)
    found = ops.norm_pair(a, b, *weights, EPS)
    wanted = torch.cat([exact(inputs[0], inputs[2]), exact(inputs[1], inputs[3])], -1)
    check_close(found, wanted, "value")
    check_gradients([found], [wanted], [a, b, *weights], inputs, [g])


def test_an_input_without_a_gradient_gets_none(random):
    """The embeddings are the target's."""
    a, b, w = random(5, 8).detach(), random(5, 8), random(8)
    kernels.norm_pair(a, b, w, w, EPS).sum().backward()
    assert a.grad is None
    assert b.grad is not None


def test_an_empty_batch_and_a_row_of_zeros():
    ones = torch.ones(8)
    assert kernels.rms_norm(torch.zeros(0, 8), ones, EPS).shape == (0, 8)
    assert kernels.norm_pair(torch.zeros(0, 8), torch.zeros(0, 8), ones, ones, EPS).shape == (0, 16)
    assert torch.equal(kernels.rms_norm(torch.zeros(3, 8), ones, EPS), torch.zeros(3, 8))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_stays_in_its_row(bad):
    x = torch.randn(4, 8)
    x[2, 5] = bad
    found = kernels.rms_norm(x, torch.ones(8), EPS).isfinite()
    assert not found[2].all()
    assert found[[0, 1, 3]].all()


def test_a_weight_that_is_a_column_of_a_larger_tensor(random):
    x, weight = random(3, 5).detach(), torch.arange(10.0)[::2]
    check = torch.testing.assert_close
    check(kernels.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    check(kernels.add_rms_norm(x, x, weight, 1e-5)[1], reference.add_rms_norm(x, x, weight, 1e-5)[1])
    check(kernels.norm_pair(x, x, weight, weight, 1e-5), reference.norm_pair(x, x, weight, weight, 1e-5))
