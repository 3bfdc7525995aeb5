"""Writes a head as the directory that SGLang loads, every field written out.

Contract: sglang 0.5.15-0.5.20, srt/models/llama_eagle3.py. What is not written there falls back without a word:
a missing theta to 10000, a missing dtype to float16, missing layer ids to a default, a missing tensor to noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from eagle_lab.config.aux_layers import sglang_ids
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import replacing, write_json
from eagle_lab.draft.head import Head
from eagle_lab.draft.shape import HeadShape
from eagle_lab.export.head_files import ARCHITECTURE, load


def config_json(shape: HeadShape, aux_layers: list[int], target: dict[str, Any], dtype: str) -> dict[str, Any]:
    """config.json of the export. aux_layers: canonical ids; target: its config.json (text part)."""
    rope = dict(shape.rope_parameters)
    scaling = None if rope["rope_type"] == "default" else {k: v for k, v in rope.items() if k != "rope_theta"}
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "num_hidden_layers": 1,
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bias": False,
        "rms_norm_eps": shape.rms_norm_eps,
        # both spellings: transformers 5 reads the first, 4 and other engines the other two
        "rope_parameters": rope,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": scaling,
        "max_position_embeddings": shape.max_position_embeddings,
        "bos_token_id": target.get("bos_token_id"),
        "eos_token_id": target.get("eos_token_id"),
        "pad_token_id": target.get("pad_token_id"),
        "dtype": dtype,
        "torch_dtype": dtype,
        "num_aux_hidden_states": shape.num_aux,
        "fc_norm": shape.fc_norm,
        "norm_before_fc": False,
        "norm_output": shape.norm_output,
        # vLLM reads the outer ids, canonical; SGLang the inner ones, in its own convention
        "eagle_aux_hidden_state_layer_ids": aux_layers,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": sglang_ids(aux_layers, target["architectures"][0]),
            "use_aux_hidden_state": True,
        },
        **({"target_hidden_size": shape.target_hidden_size} if shape.target_hidden_size != shape.hidden_size else {}),
    }


def expected_tensors(shape: HeadShape) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of the export; derived from the module, so the two cannot drift apart."""
    with torch.device("meta"):
        return {name: tuple(t.shape) for name, t in Head(shape).state_dict().items()}


def check_tensors(tensors: dict[str, Tensor], shape: HeadShape, where: str) -> None:
    """Raises LabError naming every tensor that is missing, unexpected, of the wrong shape, or not finite."""
    wanted = expected_tensors(shape)
    faults = [f"{n} is missing" for n in wanted if n not in tensors]
    faults += [f"{n} is unexpected (SGLang would drop it silently)" for n in tensors if n not in wanted]
    for name, tensor in tensors.items():
        if name in wanted and tuple(tensor.shape) != wanted[name]:
            faults.append(f"{name} has shape {list(tensor.shape)}, wanted {list(wanted[name])}")
        elif tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            faults.append(f"{name} holds NaN or Inf")
    if not faults:
        ids = tensors["d2t"] + torch.arange(shape.draft_vocab_size)
        if not torch.equal(torch.nonzero(tensors["t2d"]).flatten(), ids):
            faults.append("d2t and t2d disagree: nonzero(t2d) must equal d2t + arange (d2t holds offsets, not ids)")
    if faults:
        raise LabError(f"{where}: not a servable head: " + "; ".join(faults) + ". Export it again from a whole run.")


def write(
    directory: Path,
    tensors: dict[str, Tensor],
    shape: HeadShape,
    aux_layers: list[int],
    target: dict[str, Any],
    facts: dict[str, Any],
) -> None:
    """config.json, model.safetensors and export.json (`facts`: what the head was made for and from).

    tensors: the head's state dict. Floating tensors are stored in the target's dtype. Raises LabError as
    `check_tensors`; nothing is written then.
    """
    check_tensors(tensors, shape, str(directory))
    dtype = str(target.get("dtype") or target.get("torch_dtype") or "bfloat16")
    stored = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
    stored = {n: t.to(getattr(torch, dtype)) if t.is_floating_point() else t for n, t in stored.items()}
    directory.mkdir(parents=True, exist_ok=True)
    with replacing(directory / "model.safetensors") as aside:
        save_file(stored, aside, metadata={"format": "pt"})
    write_json(directory / "config.json", config_json(shape, aux_layers, target, dtype))
    write_json(directory / "export.json", facts)


def read(directory: Path, shape: HeadShape) -> dict[str, Tensor]:
    """The tensors of an export, checked like `write` does."""
    tensors = load(directory)
    check_tensors(tensors, shape, str(directory))
    return tensors
