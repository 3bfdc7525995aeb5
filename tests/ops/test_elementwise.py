"""RoPE and SwiGLU: kernel (interpreted on a CPU) and reference against fp64."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from eagle_lab.ops.rope import function as rope_kernel
from eagle_lab.ops.rope import reference as rope_reference
from eagle_lab.ops.swiglu import function as swiglu_kernel
from eagle_lab.ops.swiglu import reference as swiglu_reference
from eagle_lab.ops.tolerances import check_close

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
SCALINGS = {
    "default": {},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
}


def cos_sin(rope_type: str, dim: int, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    parameters = {"rope_type": rope_type, "rope_theta": 10_000.0, **SCALINGS[rope_type]}
    config = LlamaConfig(
        hidden_size=4 * dim,
        num_attention_heads=4,
        head_dim=dim,
        max_position_embeddings=512,
        rope_parameters=parameters,
    )
    cos, sin = LlamaRotaryEmbedding(config, device=positions.device)(torch.zeros(1), positions[None])
    return cos[0], sin[0]


@pytest.mark.parametrize("rope", [rope_reference.rope, rope_kernel.rope], ids=["reference", "triton"])
@DTYPES
@pytest.mark.parametrize("rope_type", SCALINGS)
@pytest.mark.parametrize(("heads", "dim"), [(3, 10), (4, 64)])
def test_rope(rope, dtype, rope_type, heads, dim, random):
    positions = torch.tensor([0, 1, 5, 5, 130, 511, 7])
    cos, sin = (t.to(dtype) for t in cos_sin(rope_type, dim, positions))
    x, g = random(7, heads, dim, dtype=dtype), random(7, heads, dim, dtype=dtype)
    wide = x.detach().double().requires_grad_()
    pairs = torch.complex(wide[..., : dim // 2], wide[..., dim // 2 :])
    turned = pairs * torch.complex(cos.double(), sin.double())[:, None, : dim // 2]
    wanted = torch.cat([turned.real, turned.imag], -1)
    found = rope(x, cos, sin)
    check_close(found, wanted, "value")
    check_close(torch.autograd.grad(found, x, g)[0], torch.autograd.grad(wanted, wide, g.double())[0], "gradient")


@pytest.mark.parametrize("swiglu", [swiglu_reference.swiglu, swiglu_kernel.swiglu], ids=["reference", "triton"])
@DTYPES
@pytest.mark.parametrize("shape", [(1,), (3, 683), (5, 1024)])
def test_swiglu(swiglu, dtype, shape, random):
    gate, up, g = random(*shape, dtype=dtype, scale=4), random(*shape, dtype=dtype), random(*shape, dtype=dtype)
    wide = [t.detach().double().requires_grad_() for t in (gate, up)]
    wanted = torch.nn.functional.silu(wide[0]) * wide[1]
    found = swiglu(gate, up)
    check_close(found, wanted, "value")
    theirs = torch.autograd.grad(wanted, wide, g.double())
    for mine, their in zip(torch.autograd.grad(found, [gate, up], g), theirs, strict=True):
        check_close(mine, their, "gradient")


def test_saturated_gates_and_empty_batches():
    gate = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], requires_grad=True)
    y = swiglu_kernel.swiglu(gate, torch.ones(5))
    torch.testing.assert_close(y, torch.tensor([0.0, 0.0, 0.0, 100.0, 1e4]))
    torch.testing.assert_close(torch.autograd.grad(y.sum(), gate)[0], torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0]))
    assert swiglu_kernel.swiglu(torch.zeros(0, 4), torch.zeros(0, 4)).shape == (0, 4)
    assert rope_kernel.rope(torch.zeros(0, 2, 4), torch.zeros(0, 4), torch.zeros(0, 4)).shape == (0, 2, 4)


def test_a_nan_stays_where_it_is():
    x = torch.ones(3, 2, 4)
    x[1, 0, 2] = float("nan")
    bad = rope_kernel.rope(x, torch.ones(3, 4), torch.zeros(3, 4)).isnan()
    assert bad[1, 0].any()
    assert not bad[[0, 2]].any()
    assert swiglu_kernel.swiglu(x, torch.ones_like(x)).isnan().sum() == 1
