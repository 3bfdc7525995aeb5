"""The Triton kernel (interpreted on a CPU) and the reference against fp64, values and both gradients."""

from __future__ import annotations

import pytest
import torch

from eagle_lab.ops.rms_norm.reference import rms_norm as reference

triton_rms_norm = pytest.importorskip("eagle_lab.ops.rms_norm.function").rms_norm

# fp32: two reductions of at most 4096 terms. bf16: one rounding of the output (2^-8), and the interpreter truncates
# where the GPU rounds (another 2^-8).
TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (2e-2, 2e-2)}


def exact(x, w, eps):
    x, w = x.double(), w.double()
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


@pytest.mark.parametrize("op", [reference, triton_rms_norm], ids=["reference", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (17, 33), (2, 3, 64), (40, 577)])
def test_values_and_gradients(op, dtype, shape):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(shape, generator=generator) * 3).to(dtype).requires_grad_()
    w = (1 + 0.1 * torch.randn(shape[-1], generator=generator)).to(dtype).requires_grad_()
    g = torch.randn(shape, generator=generator).to(dtype)
    y = op(x, w, 1e-5)
    x64, w64 = x.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    wanted = exact(x64, w64, 1e-5)
    atol, rtol = TOLERANCE[dtype]
    torch.testing.assert_close(y.double(), wanted, atol=atol, rtol=rtol)
    dx, dw = torch.autograd.grad(y, (x, w), g)
    dx64, dw64 = torch.autograd.grad(wanted, (x64, w64), g.double())
    scale = 1 + dw64.abs().max().item()
    torch.testing.assert_close(dx.double(), dx64, atol=atol, rtol=rtol)
    torch.testing.assert_close(dw.double(), dw64, atol=atol * scale, rtol=rtol)


def test_an_empty_batch_and_a_row_of_zeros():
    assert triton_rms_norm(torch.empty(0, 8), torch.ones(8), 1e-5).shape == (0, 8)
    assert torch.equal(triton_rms_norm(torch.zeros(3, 8), torch.ones(8), 1e-5), torch.zeros(3, 8))


def test_a_nan_stays_in_its_row():
    x = torch.randn(4, 8)
    x[2, 5] = float("nan")
    bad = triton_rms_norm(x, torch.ones(8), 1e-5).isnan()
    assert bad[2].all()
    assert not bad[[0, 1, 3]].any()


def test_dispatch_names_the_path_that_runs():
    from eagle_lab.ops.dispatch import op_set

    assert op_set("reference", torch.device("cpu")).paths()["rms_norm"].endswith("rms_norm.reference")
    assert op_set("auto", torch.device("cpu")).paths()["rms_norm"].endswith("rms_norm.reference")
    assert op_set("auto", torch.device("cuda")).paths()["rms_norm"].endswith("rms_norm.function")
    assert op_set("triton", torch.device("cpu")).rms_norm is triton_rms_norm
