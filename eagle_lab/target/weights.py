"""The few tensors of a target that a head needs besides its states, without loading the target."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from eagle_lab.config.errors import LabError
from eagle_lab.target.locate import LocatedTarget

EMBEDDING = "embed_tokens.weight"
LAYER = (
    *(f"self_attn.{n}_proj.weight" for n in "qkvo"),
    *(f"mlp.{n}_proj.weight" for n in ("gate", "up", "down")),
    *("input_layernorm.weight", "post_attention_layernorm.weight"),
)


class TargetWeights:
    """Embeddings, lm_head, final norm and the last decoder layer as far as it is a Llama's; as TargetModel names them.

    Raises LabError when the safetensors files have no tensor that ends in `embed_tokens.weight`.
    """

    def __init__(self, located: LocatedTarget, device: str | torch.device = "cpu", dtype: str = "float32") -> None:
        self.located, self.device, self.dtype = located, torch.device(device), getattr(torch, dtype)
        found = [n for n in self._files if n.endswith(EMBEDDING)]
        if len(found) != 1:
            raise LabError(
                f"target {located.name}: {len(found)} tensors in {located.path} end in {EMBEDDING}, one is wanted. "
                "Train with trainer.capture=online, which loads the model by its class."
            )
        self.prefix = found[0].removesuffix(EMBEDDING)

    @cached_property
    def _files(self) -> dict[str, Path]:
        """Tensor name -> the file that has it."""
        path = self.located.path
        index = path / "model.safetensors.index.json"
        try:
            if index.exists():
                return {n: path / f for n, f in json.loads(index.read_text(encoding="utf-8"))["weight_map"].items()}
            with safe_open(path / "model.safetensors", "pt") as part:
                return dict.fromkeys(part.keys(), path / "model.safetensors")
        except (OSError, ValueError, KeyError, SafetensorError) as e:
            raise LabError(f"target {self.located.name}: its safetensors files in {path} cannot be read ({e}).") from e

    def _tensor(self, name: str) -> Tensor:
        with safe_open(self._files[name], "pt", device=str(self.device)) as part:
            tensor: Tensor = part.get_tensor(name)
        return tensor.to(self.dtype)

    @cached_property
    def embed_weight(self) -> Tensor:
        """[V, H]."""
        return self._tensor(self.prefix + EMBEDDING)

    @cached_property
    def lm_head_weight(self) -> Tensor:
        """[V, H]; the embeddings themselves in a tied model."""
        found = [n for n in self._files if n.endswith("lm_head.weight")]
        return self._tensor(found[0]) if found else self.embed_weight

    def init_weights(self) -> dict[str, Tensor]:
        """As TargetModel.init_weights, without what no head starts from."""
        layer = f"{self.prefix}layers.{self.located.num_hidden_layers - 1}."
        return {
            "lm_head": self.lm_head_weight,
            "norm": self._tensor(f"{self.prefix}norm.weight"),
            **{f"layer.{n}": self._tensor(layer + n) for n in LAYER if layer + n in self._files},
        }
