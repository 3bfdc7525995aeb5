"""Faults, each made from a good head by a small function; the check that must name it, and who reported it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Files = tuple[dict[str, Any], dict[str, Tensor]]
"""config.json and tensors, changed in place."""


@dataclass(frozen=True)
class Fault:
    name: str
    check: str
    report: str
    plant: Callable[[dict[str, Any], dict[str, Tensor]], object]


def changed(head: Path, into: Path, plant: Callable[[dict[str, Any], dict[str, Tensor]], object]) -> Path:
    """A copy of this head with the fault in it."""
    copy = shutil.copytree(head, into / "head")
    config, tensors = json.loads((copy / "config.json").read_text()), load_file(copy / "model.safetensors")
    plant(config, tensors)
    (copy / "config.json").write_text(json.dumps(config))
    save_file(tensors, copy / "model.safetensors")
    return copy


def drop(*names: str) -> Callable[[dict[str, Any], dict[str, Tensor]], object]:
    return lambda c, t: [t.pop(n) for n in names]


def say(**fields: Any) -> Callable[[dict[str, Any], dict[str, Tensor]], object]:
    return lambda c, t: c.update(fields)


def forget(*names: str) -> Callable[[dict[str, Any], dict[str, Tensor]], object]:
    return lambda c, t: [c.pop(n) for n in names]


def ids(*layers: int) -> Callable[[dict[str, Any], dict[str, Tensor]], object]:
    return lambda c, t: c["eagle_config"].update(eagle_aux_hidden_state_layer_ids=list(layers))


def put(name: str, made: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Any], dict[str, Tensor]], object]:
    return lambda c, t: t.__setitem__(name, made(t[name]).contiguous())


def add(name: str, *size: int) -> Callable[[dict[str, Any], dict[str, Tensor]], object]:
    return lambda c, t: t.__setitem__(name, torch.ones(size))


def renamed(old: str, new: str) -> Callable[[dict[str, Any], dict[str, Tensor]], object]:
    return lambda c, t: [t.__setitem__(n.replace(old, new), t.pop(n)) for n in list(t) if old in n]


def outer_ids(c: dict[str, Any], t: dict[str, Tensor]) -> None:
    c["eagle_aux_hidden_state_layer_ids"] = c.pop("eagle_config")["eagle_aux_hidden_state_layer_ids"]


def one_nan(w: Tensor) -> Tensor:
    w = w.clone()
    w.view(-1)[0] = float("nan")
    return w


def zero_rows(w: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(w[:3]), w[3:]])


def absolute(d2t: Tensor) -> Tensor:
    return d2t + torch.arange(len(d2t))


FAULTS = (
    Fault("an EAGLE-1 class", "architecture", "sglang PR#21272", say(architectures=["EagleLlamaForCausalLM"])),
    Fault("the target's class", "architecture", "EAGLE#292", say(architectures=["LlamaForCausalLM"])),
    Fault("speculators' class", "architecture", "speculators#796", say(architectures=["Eagle3Speculator"])),
    Fault("no class", "architecture", "SpecForge#215", forget("architectures")),
    Fault("two layers", "one layer", "SpecForge#129", say(num_hidden_layers=2)),
    Fault("fc is missing", "tensors", "Automodel PR#2447", drop("fc.weight")),
    Fault("lm_head is missing", "tensors", "vllm PR#6830", drop("lm_head.weight")),
    Fault("d2t is missing", "tensors", "Automodel PR#2447", drop("d2t")),
    Fault("a norm is missing", "tensors", "vllm PR#14464", drop("midlayer.hidden_norm.weight")),
    Fault("a layer under another name", "tensors", "sglang#8229", renamed("midlayer", "decoder")),
    Fault("MLP width", "shapes", "SpecForge#139", say(intermediate_size=12345)),
    Fault("head_dim", "shapes", "SpecForge#139", say(head_dim=4)),
    Fault("draft vocabulary not stated", "draft vocabulary", "EAGLE#222", forget("draft_vocab_size")),
    Fault("draft vocabulary null", "draft vocabulary", "EAGLE#222", say(draft_vocab_size=None)),
    Fault("draft vocabulary too large", "draft vocabulary", "SpecForge PR#602", say(draft_vocab_size=10**6)),
    Fault("tied", "tied embeddings", "SpecForge#139", say(tie_word_embeddings=True)),
    Fault("absolute ids", "vocabulary map", "speculators PR#1081", put("d2t", absolute)),
    Fault("offsets of zero", "vocabulary map", "EAGLE#222", put("d2t", torch.zeros_like)),
    Fault("a map of another training", "vocabulary map", "SpecForge PR#534", put("t2d", lambda t: t.roll(1))),
    Fault("a map in another order", "vocabulary map", "SpecForge PR#534", put("d2t", lambda d: d.flip(0))),
    Fault("ids beyond the vocabulary", "vocabulary map", "SpecForge PR#602", put("d2t", lambda d: d + 10**6)),
    Fault("one layer id", "aux layers", "sglang PR#14920", ids(3)),
    Fault("ids in the input convention", "aux layers", "vllm#43671", ids(2, 4, 5)),
    Fault("ids too high by one at the end", "aux layers", "sglang PR#25454", ids(1, 3, 5)),
    Fault("an id twice", "aux layers", "vllm#50170", ids(1, 3, 3)),
    Fault("ids not ascending", "aux layers", "EAGLE#261", ids(4, 3, 1)),
    Fault("the last layer's output", "aux layers", "tokenspeed PR#526", ids(1, 3, 7)),
    Fault("ids outside eagle_config", "aux layers", "sglang PR#14920", outer_ids),
    Fault("eagle_config is text", "aux layers", "sglang PR#14920", say(eagle_config="layers 1 3 4")),
    Fault("two states counted", "aux width", "sglang#24663", say(num_aux_hidden_states=2)),
    Fault("norm weights, no flag", "norms", "sglang#32334", add("fc_norm.0.weight", 64)),
    Fault("a flag, no norm weights", "norms", "sglang#32334", say(fc_norm=True)),
    Fault("norm_before_fc without weights", "norms", "sglang#24663", say(norm_before_fc=True)),
    Fault("norm_before_residual", "norms", "speculators#796", say(norm_before_residual=True)),
    Fault("a bias of q", "biases", "SpecForge#292", add("midlayer.self_attn.q_proj.bias", 64)),
    Fault("fc's bias promised", "biases", "SpecForge#292", say(bias=True)),
    Fault("another theta", "rope", "Automodel PR#2399", say(rope_parameters=None, rope_theta=5e5)),
    Fault("no rope at all", "rope", "speculators PR#574", forget("rope_parameters", "rope_theta", "rope_scaling")),
    Fault("short positions", "positions", "sglang#6783", say(max_position_embeddings=64)),
    Fault("NaN in the MLP", "values", "SpecForge#104", put("midlayer.mlp.up_proj.weight", one_nan)),
    Fault("an untrained lm_head", "values", "EAGLE#222", put("lm_head.weight", torch.zeros_like)),
    Fault("rows of lm_head at zero", "values", "SpecForge#300", put("lm_head.weight", zero_rows)),
    Fault("an embedding of its own", "embedding", "TorchSpec#38", add("embed_tokens.weight", 512, 64)),
    Fault("another activation", "activation", "speculators#796", say(hidden_act="gelu")),
    Fault("for another vocabulary", "made for this target", "vllm-ascend#5974", say(vocab_size=999)),
    Fault("for a wider target", "made for this target", "SpecForge#487", say(target_hidden_size=128)),
)
