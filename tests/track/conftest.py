"""No key and none of W&B's variables, so that what a run does is ours alone; and a head that says where it is from."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from eagle_lab.config.files import write_json
from eagle_lab.export.head_files import LAYER_TENSORS

FACTS = {
    "target_digest": "t" * 16,
    "dataset_digest": "d" * 16,
    "train_digest": "a" * 16,
    "git_sha": "c" * 40,
    "aux_layers": [2, 4, 5],
}


@pytest.fixture(autouse=True)
def no_key(monkeypatch, tmp_path):
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write_head(directory: Path) -> None:
    """The names of an EAGLE-3 head; its values are never served here."""
    directory.mkdir(exist_ok=True)
    eagle = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}
    config = {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": eagle, "vocab_size": 512, "hidden_size": 64}
    write_json(directory / "config.json", config)
    write_json(directory / "export.json", FACTS)
    names = [*LAYER_TENSORS, "fc.weight", "norm.weight", "lm_head.weight", "d2t"]
    save_file({name: torch.zeros(1) for name in names}, directory / "model.safetensors")


@pytest.fixture
def head(tmp_path) -> Path:
    write_head(tmp_path / "head")
    return tmp_path / "head"
