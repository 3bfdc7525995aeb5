"""Small random models of each family: fused, they compute what transformers does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle_lab.ops.dispatch import OpSet, op_set
from eagle_lab.target.model import TargetModel
from eagle_lab.train.fuse import fuse
from tests.target.test_model import made

LAYERS = [1, 3, 6]


def counting(name: str, op: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        calls.append(name)
        return op(*args)

    return run


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3ForCausalLM", "DeepseekV3ForCausalLM"])
def test_fused_norms_and_mlps_compute_the_same(architecture: str, tmp_path: Path) -> None:
    located = made(architecture, tmp_path)
    ids = torch.randint(3, located.vocab_size, (2, 9), generator=torch.Generator().manual_seed(1))
    plain = TargetModel(located, LAYERS).capture(ids)
    calls: list[str] = []
    ops = op_set("triton", torch.device("cpu"))
    model = TargetModel(located, LAYERS)
    fuse(model.decoder, replace(ops, **{n: counting(n, getattr(ops, n), calls) for n in ("rms_norm", "swiglu")}))
    fused = model.capture(ids)
    assert set(calls) == {"rms_norm", "swiglu"}
    torch.testing.assert_close(fused.aux, plain.aux, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(fused.last, plain.last, atol=2e-4, rtol=1e-4)


def test_a_norm_of_another_kind_stays(tmp_path: Path) -> None:
    """Gemma multiplies by 1 + weight."""
    model = TargetModel(made("Gemma3ForConditionalGeneration", tmp_path), LAYERS)
    fuse(model.decoder, replace(OpSet(), rms_norm=counting("rms_norm", OpSet().rms_norm, calls := [])))
    model.capture(torch.arange(3, 9)[None])
    assert not calls
