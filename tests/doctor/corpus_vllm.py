"""Faults that vLLM alone suffers from, each made from a good head; see corpus.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.doctor.corpus import Fault, add, renamed, say
from tests.doctor.layouts import by_layers, nested


@dataclass(frozen=True)
class VllmFault(Fault):
    export: dict[str, Any] = field(default_factory=dict)
    """Changed in export.json, which says how the head was trained."""
    sglang: bool = True
    """Whether SGLang takes this head: not one in speculators' layout."""


def whole_vocabulary(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    size = c["draft_vocab_size"] = c["vocab_size"]
    t["lm_head.weight"] = torch.randn(size, c["hidden_size"])
    t["d2t"], t["t2d"] = torch.zeros(size, dtype=torch.int64), torch.ones(size, dtype=torch.bool)


def older_norms(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    c["fc_norm"] = c["use_aux_norm"] = True
    t.update({f"aux_norm_{where}.weight": t["norm.weight"].clone() for where in ("low", "mid", "high")})


def older_flag(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    older_norms(c, t)
    c["fc_norm"] = False
    for i, where in enumerate(("low", "mid", "high")):
        t[f"fc_norm.{i}.weight"] = t.pop(f"aux_norm_{where}.weight")


def one_bias(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    c["attention_bias"] = True
    t["midlayer.self_attn.o_proj.bias"] = torch.ones(c["hidden_size"])


def random_embedding(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    t["embed_tokens.weight"] = torch.randn(c["vocab_size"], c["hidden_size"])


def speculators(c: dict[str, Any], t: dict[str, Tensor], **fields: Any) -> None:
    """Our head in its layout, every flag as it was trained."""
    flags = {"norm_before_residual": False, "norm_before_fc": False, "fc_norm": False, "norm_output": False}
    said = {"architectures": ["Eagle3DraftModel"], **flags, "eagle_aux_hidden_state_layer_ids": [2, 4, 5], **fields}
    nested(c, "0.7.0.1", "rope_parameters", "max_position_embeddings", layer={}, **said)
    by_layers(t)


def unsaid_residual(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    speculators(c, t)
    del c["norm_before_residual"]


def no_verifier(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    speculators(c, t)
    del c["speculators_config"]["verifier"]


def other_layer(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    speculators(c, t)
    c["transformer_layer_config"]["model_type"] = "phi3"


def outer_type(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    speculators(c, t, model_type="llama")


def no_eps(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    speculators(c, t)
    del c["transformer_layer_config"]["rms_norm_eps"]


def four_states(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    speculators(c, t, eagle_aux_hidden_state_layer_ids=[2, 3, 4, 5])
    t["fc.weight"] = torch.randn(c["transformer_layer_config"]["hidden_size"], 4 * t["norm.weight"].numel())


FOUR = {"aux_layers": [2, 3, 4, 5]}
OTHER = {"aux_layers": [1, 3, 6]}


def other_ids(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    c["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [k - 1 for k in OTHER["aux_layers"]]


VLLM_FAULTS = (
    VllmFault("a random embedding, kept", "embedding", "TorchSpec#38", random_embedding, sglang=False),
    VllmFault("ids where SGLang alone reads them", "aux layers", "vllm#50170", other_ids, OTHER),
    VllmFault("SGLang's ids", "aux layers", "vllm#43671", say(eagle_aux_hidden_state_layer_ids=[1, 3, 4])),
    VllmFault("ids beyond the layers", "aux layers", "vllm#50170", say(eagle_aux_hidden_state_layer_ids=[2, 4, 9])),
    VllmFault("four states, three counted", "aux width", "sglang PR#14920", four_states, FOUR, sglang=False),
    VllmFault("norm_before_residual not said", "norms", "speculators#796", unsaid_residual, sglang=False),
    VllmFault("use_aux_norm, which vLLM ignores", "norms", "sglang#32334", older_flag),
    VllmFault("norms under their older names", "norms", "sglang#32334", older_norms),
    VllmFault("a bias of o alone", "biases", "SpecForge#292", one_bias),
    VllmFault("an MLP's bias promised", "biases", "SpecForge#292", say(mlp_bias=True)),
    VllmFault("a map beside a whole vocabulary", "vocabulary map", "EAGLE#222", whole_vocabulary),
    VllmFault("a model's part", "tensors", "sglang#8229", renamed("midlayer", "model.layers.0")),
    VllmFault("a tensor without a place", "tensors", "sglang#8229", add("verifier_norm.weight", 64)),
    VllmFault("no verifier named", "architecture", "speculators#796", no_verifier, sglang=False),
    VllmFault("a layer of another kind", "architecture", "speculators#796", other_layer, sglang=False),
    VllmFault("a model_type beside the table", "architecture", "speculators#796", outer_type, sglang=False),
    VllmFault("a size without a default", "shapes", "speculators#796", no_eps, sglang=False),
)


def biased(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    c.update(attention_bias=True, mlp_bias=True)
    weights = [n for n in t if n.startswith("midlayer.") and n.endswith("_proj.weight")]
    t.update({n.replace("weight", "bias"): torch.ones(t[n].shape[0]) for n in weights if "down" not in n})
    t["midlayer.mlp.down_proj.bias"] = torch.ones(c["hidden_size"])


TAKEN = {
    "tied embeddings": say(tie_word_embeddings=True),
    "positions": say(max_position_embeddings=64),
    "architecture": say(architectures=["LlamaForCausalLM"]),
    "biases": biased,
    "norms": say(norm_before_residual=True),
}
"""Check -> what SGLang fails a head for, by another trainer, that vLLM serves as it was trained."""
