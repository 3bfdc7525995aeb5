"""The tensors read from the files are those of the loaded model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from eagle_lab.config.errors import LabError
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.target.model import TargetModel
from eagle_lab.target.weights import LAYER, TargetWeights
from tests.target.test_model import made


def check(located: LocatedTarget) -> None:
    found, wanted = TargetWeights(located), TargetModel(located, [1])
    assert torch.equal(found.embed_weight, wanted.embed_weight)
    assert torch.equal(found.lm_head_weight, wanted.lm_head_weight)
    layer = {f"layer.{n}" for n in LAYER}
    names = {n for n in wanted.init_weights() if n in layer | {"lm_head", "norm"}}
    given = found.init_weights()
    assert set(given) == names
    assert all(torch.equal(given[n], wanted.init_weights()[n]) for n in names)


@pytest.mark.parametrize(
    "architecture",
    ["LlamaForCausalLM", "Qwen3ForCausalLM", "DeepseekV3ForCausalLM", "Gemma3ForConditionalGeneration"],
)
def test_of_small_models(architecture: str, tmp_path: Path) -> None:
    check(made(architecture, tmp_path))


def test_of_smollm2(smollm2: LocatedTarget) -> None:
    check(smollm2)


def test_of_sharded_files(tmp_path: Path) -> None:
    located = made("LlamaForCausalLM", tmp_path / "a")
    TargetModel(located, [1]).model.save_pretrained(tmp_path / "b", max_shard_size="20KB")
    assert (tmp_path / "b" / "model.safetensors.index.json").exists()
    check(replace(located, path=tmp_path / "b"))


def test_files_without_embeddings_are_refused(tmp_path: Path) -> None:
    located = made("LlamaForCausalLM", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(LabError, match=r"its safetensors files in .* cannot be read"):
        TargetWeights(located)
