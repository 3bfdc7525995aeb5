"""Faults, each made from a good head or server start by a small function; what must name them, who reported them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class ServerFault:
    name: str
    check: str
    report: str
    words: Callable[[list[str], Path, Path], list[str]] = lambda words, target, folder: words
    """(the right command, the target, a folder for files) -> the command that was typed."""
    environment: dict[str, str] = field(default_factory=dict)


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


def typed(**arguments: str | None) -> Callable[[list[str], Path, Path], list[str]]:
    """Other values for arguments; None leaves one out, an argument that was not there is added."""

    def words(right: list[str], target: Path, folder: Path) -> list[str]:
        out = list(right)
        for name, value in arguments.items():
            flag = "--" + name.replace("_", "-")
            if flag in out:
                at = out.index(flag)
                del out[at : at + 2]
            out += [flag, value] if value is not None else []
        return out

    return words


def another_template(words: list[str], target: Path, folder: Path) -> list[str]:
    file = folder / "other.jinja"
    file.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}answer: ")
    return [*words, "--chat-template", str(file)]


def other_weights(words: list[str], target: Path, folder: Path) -> list[str]:
    """The same tokens under the same name: each layer's states turned in pairs, lm_head with them."""
    copy = shutil.copytree(target, folder / "target")
    tensors = load_file(copy / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        w = tensors[name]
        tensors[name] = torch.stack([-w[:, 1::2], w[:, 0::2]], -1).flatten(1).contiguous()
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return typed(model_path=str(copy), served_model_name=str(target))(words, target, folder)


SPECULATION = ("algorithm", "draft_model_path", "num_steps", "eagle_topk", "num_draft_tokens")
SERVER_FAULTS = (
    ServerFault("EAGLE for EAGLE3", "served as EAGLE-3", "sglang PR#21272", typed(speculative_algorithm="EAGLE")),
    ServerFault(
        "fewer draft tokens",
        "served as EAGLE-3",
        "sglang#3762",
        typed(speculative_num_steps="1", speculative_num_draft_tokens="2"),
    ),
    ServerFault(
        "no speculation",
        "served as EAGLE-3",
        "slime#1177",
        typed(**dict.fromkeys((f"speculative_{name}" for name in SPECULATION), None)),
    ),
    ServerFault("another precision", "served as EAGLE-3", "SpecForge#104", typed(dtype="bfloat16")),
    ServerFault("a shorter context", "served as EAGLE-3", "sglang#6783", typed(context_length="256")),
    ServerFault("another chat template", "chat template", "SpecForge#885", another_template),
    ServerFault("a rotated target", "aux states", "vllm-ascend#5974", other_weights),
    ServerFault(
        "acceptance that is made up",
        "training equals serving",
        "SpecForge#455",
        environment={"SGLANG_SIMULATE_ACC_LEN": "3", "SGLANG_SIMULATE_ACC_METHOD": "match-expected"},
    ),
)
