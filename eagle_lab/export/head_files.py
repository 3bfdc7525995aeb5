"""The files of a head's directory, whoever wrote them: which SGLang loads, that they are whole, and their digest."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from eagle_lab.config.digest import file_digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import check_fields, read_json, read_tensors
from eagle_lab.config.model_config import read_head
from eagle_lab.config.stage import changed

ARCHITECTURE = "LlamaForCausalLMEagle3"
LAYER_TENSORS = frozenset(
    f"midlayer.{name}.weight"
    for name in (
        *(f"self_attn.{p}_proj" for p in "qkvo"),
        *(f"mlp.{p}_proj" for p in ("gate", "up", "down")),
        *("hidden_norm", "input_layernorm", "post_attention_layernorm"),
    )
)
# what SGLang tries, in its order: files, and the index that says which of them count
KINDS = (("*.safetensors", "model.safetensors.index.json"), ("*.bin", "pytorch_model.bin.index.json"))
# sglang 0.5.20, srt/model_loader/weight_utils.py: a trainer's state, no weights
NO_WEIGHTS = ("training_args.bin", "optimizer.bin")
AGAIN = "Export or download the head again."
AS_EXPORTED = (
    "Put back the file that was exported, or export again; to take the files as they are, remove {}/manifest.json."
)


def weight_files(directory: Path) -> list[Path]:
    """The files that SGLang loads. LabError when there are none, or when a shard that the index names is missing."""
    for pattern, name in KINDS:
        found = sorted(f for f in directory.glob(pattern) if f.name not in NO_WEIGHTS)
        index = directory / name
        if index.exists():
            shards = read_json(index)
            check_fields(shards, {"weight_map": dict[str, str]}, str(index), AGAIN)
            found = [directory / shard for shard in sorted(set(shards["weight_map"].values()))]
            missing = [shard.name for shard in found if not shard.is_file()]
            if missing:
                raise LabError(f"{directory}: {index.name} names {', '.join(missing)}, not there. {AGAIN}")
        if found:
            return found
    raise LabError(f"{directory}: no *.safetensors or *.bin weights there. {AGAIN}")


def load(directory: Path) -> dict[str, Tensor]:
    """Every tensor of a head, by our names as SGLang maps them; data is read from disk when it is used."""
    tensors: dict[str, Tensor] = {}
    for file in weight_files(directory):
        read = read_tensors(file, AGAIN) if file.suffix == ".safetensors" else unpickled(file)
        tensors |= {name.removeprefix("model.").replace("layers.0.", "midlayer."): t for name, t in read.items()}
    return tensors


def unpickled(file: Path) -> dict[str, Any]:
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as e:
        # torch's own words advise to load it with weights_only=False, which would run what is in it
        why = "it is safetensors: rename it" if _is_safetensors(file) else type(e).__name__
        raise LabError(f"{file}: not a whole file of pickled weights ({why}). {AGAIN}") from e
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
        raise LabError(f"{file}: no name -> tensor table is in it. {AGAIN}")
    return found


def _is_safetensors(file: Path) -> bool:
    try:
        with safe_open(file, "pt"):
            return True
    except (OSError, SafetensorError):
        return False


def digest(directory: Path) -> str:
    """Of config.json and weights: names the head in every row."""
    return file_digest(directory / "config.json", *weight_files(directory))


def check(directory: Path) -> str:
    """What was found; LabError when a head by any trainer is torn, edited after its export, or lacks a tensor.

    SGLang leaves a tensor that is missing as noise, silently. Its own embedding, t2d and tensors that options of the
    config add (fc_norm, input_norm) are its trainer's affair.
    """
    config = read_head(directory)
    for name, told in changed(directory):
        raise LabError(f"{directory / name}: {told}. {AS_EXPORTED.format(directory)}")
    found = load(directory)
    wanted = {*LAYER_TENSORS, "fc.weight", "norm.weight"}
    if config.get("draft_vocab_size") is not None:
        wanted.add("lm_head.weight")
        if config["draft_vocab_size"] != config["vocab_size"]:
            wanted.add("d2t")
    missing = sorted(wanted - found.keys())
    if config["architectures"][0] == ARCHITECTURE and missing:
        raise LabError(
            f"{directory}: the head has no {', '.join(missing)}: SGLang would serve noise there without a word. Export "
            "it again from a whole run."
        )
    return f"{len(found)} tensors in {', '.join(f.name for f in weight_files(directory))}"
