"""config.json of targets and heads: every departure is named, none becomes a KeyError later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.model_config import read_export, read_head, read_target

TARGET = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, "hidden_size": 64, "vocab_size": 512}
HEAD = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "draft_vocab_size": 100}


def put(directory: Path, config: object, name: str = "config.json") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(config if isinstance(config, str) else json.dumps(config))
    return directory


@pytest.mark.parametrize(("read", "whole"), [(read_target, TARGET), (read_head, HEAD)])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("[]", "list found, a JSON object is wanted"),
        ("{", "not JSON"),
        ({"vocab_size": "512"}, "vocab_size='512': a whole number is wanted"),
        ({"hidden_size": None}, "hidden_size=None: a whole number is wanted"),
        ({"hidden_size": 64.0}, "hidden_size=64.0: a whole number is wanted"),
        ({"hidden_size": 0}, "hidden_size=0: at least 1 is wanted"),
        ({"max_position_embeddings": "2048"}, "max_position_embeddings='2048': a whole number or null is wanted"),
        ({"architectures": "LlamaForCausalLM"}, "architectures='LlamaForCausalLM': a list of texts is wanted"),
        ({"architectures": []}, "no value for architectures"),
        ({"rope_scaling": "yarn"}, "rope_scaling='yarn': an object or null is wanted"),
    ],
)
def test_broken_configs(tmp_path, read, whole, change, said):
    put(tmp_path, change if isinstance(change, str) else whole | change)
    with pytest.raises(LabError) as e:
        read(tmp_path)
    assert f"{tmp_path}/config.json: {said}" in str(e.value)


@pytest.mark.parametrize("read", [read_target, read_head])
def test_places_that_are_no_directory_of_a_model(tmp_path, read):
    with pytest.raises(LabError, match="gone: no such directory"):
        read(tmp_path / "gone")
    (tmp_path / "file").write_text("{}")
    with pytest.raises(LabError, match="file: a file"):
        read(tmp_path / "file")
    with pytest.raises(LabError, match=r"no config\.json in it"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["hidden_size", "vocab_size"])
def test_missing_fields(tmp_path, name):
    for read, whole in ((read_target, TARGET), (read_head, HEAD)):
        put(tmp_path, {k: v for k, v in whole.items() if k != name})
        with pytest.raises(LabError, match=f"no value for {name}"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"draft_vocab_size": "100"}, "draft_vocab_size='100'"),
        ({"num_aux_hidden_states": "3"}, "num_aux_hidden_states='3'"),
        ({"eagle_config": [1]}, r"eagle_config=\[1\]: an object"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ["1"]}},
            r"eagle_config: eagle_aux_hidden_state_layer_ids",
        ),
        ({"eagle_config": {"use_aux_hidden_state": "yes"}}, "eagle_config: use_aux_hidden_state='yes'"),
    ],
)
def test_what_only_a_head_has(tmp_path, change, said):
    with pytest.raises(LabError, match=said):
        read_head(put(tmp_path, HEAD | change))


def test_text_config_is_merged_and_the_outer_architecture_kept(tmp_path):
    text = {**TARGET, "vocab_size": 9, "model_type": "inner", "architectures": ["In"]}
    outer = {"architectures": ["Out"], "model_type": "outer", "text_config": text, "vocab_size": 1, "hidden_size": 1}
    config = read_target(put(tmp_path, outer))
    assert (config["architectures"], config["model_type"], config["vocab_size"], config["hidden_size"]) == (
        ["Out"], "outer", 9, 64,
    )  # fmt: skip
    assert read_target(put(tmp_path, {**TARGET, "text_config": None}))["hidden_size"] == 64
    with pytest.raises(LabError, match="text_config='x': an object"):
        read_target(put(tmp_path, {**TARGET, "text_config": "x"}))


def test_what_the_exporter_wrote(tmp_path):
    assert read_export(tmp_path) == {}
    assert read_export(put(tmp_path, {"aux_layers": [1]}, "export.json")) == {"aux_layers": [1]}
    with pytest.raises(LabError, match=r"export\.json: aux_layers='1,2'"):
        read_export(put(tmp_path, {"aux_layers": "1,2"}, "export.json"))
