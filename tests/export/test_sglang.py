"""What an export must hold, and that every departure from it is named before anything is written."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.doctor.replay import shape_of
from eagle_lab.draft.shape import HeadShape
from eagle_lab.export import sglang
from eagle_lab.export.verify import Theirs, judge, verify
from eagle_lab.serve.launch import import_environment
from tests.draft.conftest import SHAPE, random_head

TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 8,
    "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 40,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 100.0, "hidden_act": "silu",
    "dtype": "float32", "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip


def tensors():
    return dict(random_head().state_dict())


@pytest.fixture
def exported(tmp_path):
    sglang.write(tmp_path / "head", tensors(), SHAPE, [2, 4, 5], TARGET, {"target_digest": "x"})
    return tmp_path / "head"


def test_every_field_is_written_out(exported):
    c = json.loads((exported / "config.json").read_text())
    assert c["architectures"] == ["LlamaForCausalLMEagle3"]
    assert c["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True}
    assert c["tie_word_embeddings"] is False
    assert c["num_hidden_layers"] == 1
    assert (c["vocab_size"], c["draft_vocab_size"], c["num_aux_hidden_states"]) == (40, 24, 3)
    assert c["rope_parameters"] == {"rope_type": "default", "rope_theta": 100.0}
    assert (c["rope_theta"], c["rope_scaling"]) == (100.0, None)
    assert (c["head_dim"], c["max_position_embeddings"], c["dtype"], c["torch_dtype"]) == (4, 128, "float32", "float32")


def test_the_written_tensors_are_the_heads(exported):
    wanted = tensors()
    found = sglang.read(exported, SHAPE)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[n], wanted[n]) for n in wanted)
    assert "embed_tokens.weight" not in found


def test_a_bfloat16_target_gets_a_bfloat16_head(tmp_path):
    sglang.write(tmp_path, tensors(), SHAPE, [2, 4, 5], {**TARGET, "dtype": "bfloat16"}, {})
    found = load_file(tmp_path / "model.safetensors")
    assert found["fc.weight"].dtype == torch.bfloat16
    assert found["d2t"].dtype == torch.int64


def changed(name, value):
    out = tensors()
    if value is None:
        del out[name]
    else:
        out[name] = value
    return out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: changed("fc.weight", None), "fc.weight is missing"),
        (lambda: changed("d2t", None), "d2t is missing"),
        (lambda: changed("lm_head.bias", torch.zeros(24)), "lm_head.bias is unexpected"),
        (lambda: changed("fc.weight", torch.zeros(16, 16)), r"fc.weight has shape \[16, 16\], wanted \[16, 48\]"),
        (lambda: changed("norm.weight", torch.full((16,), float("nan"))), "norm.weight holds NaN"),
        (lambda: changed("d2t", tensors()["d2t"] + torch.arange(24)), "d2t holds offsets, not ids"),
    ],
)
def test_heads_that_are_not_servable(tmp_path, given, message):
    with pytest.raises(LabError, match=message):
        sglang.write(tmp_path / "head", given(), SHAPE, [2, 4, 5], TARGET, {})
    assert not (tmp_path / "head").exists()


def target_directory(tmp_path):
    path = tmp_path / "target"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(TARGET))
    return path


def sample():
    g = torch.Generator().manual_seed(9)
    return {"embeds": torch.randn(12, 16, generator=g), "aux": torch.randn(12, 48, generator=g)}


# every export of the whole chain (tests/e2e) is verified without options
@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.long), {"fc_norm": True, "norm_output": True}], ids=str
)
def test_sglangs_own_class_loads_it_whole_and_computes_the_same(options, tmp_path):
    shape, exported = replace(SHAPE, **options), tmp_path / "head"
    sglang.write(exported, dict(random_head(shape).state_dict()), shape, [2, 4, 5], TARGET, {})
    assert shape_of(exported) == shape
    found = verify(exported, target_directory(tmp_path), shape, sample(), import_environment(os.environ))
    assert found["untouched"] == ["model.embed_tokens.weight"]
    assert found["max_logit_difference"] < 1e-4
    assert found["argmax_agreement"] == 1
    assert found["positions"] == 11


# off by 6 rounding steps in bfloat16, the right one by half a step; two are allowed
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_another_rope_theta_in_config_json_is_seen(dtype, tmp_path):
    exported, target = tmp_path / "head", target_directory(tmp_path)
    sglang.write(exported, tensors(), SHAPE, [2, 4, 5], {**TARGET, "dtype": dtype}, {})
    file = exported / "config.json"
    config = json.loads(file.read_text())
    config["rope_parameters"]["rope_theta"] = config["rope_theta"] = 10000.0
    file.write_text(json.dumps(config))
    with pytest.raises(ServingFault, match=f"logits differ.* in {dtype}"):
        verify(exported, target, SHAPE, sample(), import_environment(os.environ))


def test_a_tensor_that_sglang_would_not_load_is_named(tmp_path):
    with pytest.raises(ServingFault, match=r"loads no value into model\.fc\.weight"):
        judge(*_judged(tmp_path, ["model.embed_tokens.weight", "model.fc.weight"], 0))
    with pytest.raises(ServingFault, match="another draft vocabulary"):
        judge(*_judged(tmp_path, ["model.embed_tokens.weight"], 1))
    assert judge(*_judged(tmp_path, ["model.embed_tokens.weight"], 0))["max_logit_difference"] == 0


def test_logits_are_compared_at_their_size(tmp_path):
    path, ours, theirs, head = _judged(tmp_path, ["model.embed_tokens.weight"], 0)
    large = ours + 30
    assert judge(path, large, theirs._replace(logits=large + 1.6e-3), head)["argmax_agreement"] == 1
    for off in (0.1, float("nan")):
        with pytest.raises(ServingFault, match=r"allowed 0\.03 in float32"):
            judge(path, large, theirs._replace(logits=large + off), head)


def test_a_wide_head_in_bfloat16_may_round_twice(tmp_path):
    path, ours, theirs, head = _judged(tmp_path, ["model.embed_tokens.weight"], 0)
    (path / "config.json").write_text(json.dumps({"dtype": "bfloat16"}))
    wide = ours + 1.88  # the largest logit of an 8B shape with random weights
    assert judge(path, wide, theirs._replace(logits=wide + 0.0148), head)["argmax_agreement"] == 1
    with pytest.raises(ServingFault, match=r"allowed 0\.0294 in bfloat16"):
        judge(path, wide, theirs._replace(logits=wide + 0.03), head)


def _judged(path, untouched, shift):
    (path / "config.json").write_text(json.dumps({"dtype": "float32"}))
    head = random_head(SHAPE)
    size = SHAPE.draft_vocab_size
    theirs = Theirs(torch.zeros(3, size), untouched, head.target_ids(torch.arange(size)) + shift)
    return path, torch.zeros(3, size), theirs, head


def test_reading_a_torn_or_foreign_export_is_refused(exported):
    broken = load_file(exported / "model.safetensors")
    del broken["lm_head.weight"]
    save_file(broken, exported / "model.safetensors")
    with pytest.raises(LabError, match=r"lm_head\.weight is missing"):
        sglang.read(exported, SHAPE)
    other = HeadShape(**{**SHAPE.__dict__, "draft_vocab_size": 23})
    with pytest.raises(LabError, match="wanted"):
        sglang.check_tensors(tensors(), other, "here")
