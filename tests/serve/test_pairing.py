"""Which head may be served with which target."""

from __future__ import annotations

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.serve.pairing import CAPTURING_TARGETS, algorithm, check_pair
from tests.serve.conftest import HEAD, TARGET, directory


@pytest.mark.parametrize("architecture", ["LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"])
def test_eagle3_is_derived_from_the_head(tmp_path, architecture):
    assert algorithm(directory(tmp_path, {**HEAD, "architectures": [architecture]})) == "EAGLE3"


@pytest.mark.parametrize(
    "found",
    [["LlamaForCausalLMEagle"], ["Qwen2ForCausalLMEagle"], ["Eagle3DraftModel"], ["LlamaForCausalLM"], [], None],
)
def test_other_heads_are_refused(tmp_path, found):
    with pytest.raises(LabError, match="not an EAGLE-3 head"):
        algorithm(directory(tmp_path, {**HEAD, "architectures": found}))


def test_a_missing_config_is_named(tmp_path):
    with pytest.raises(LabError, match=r"config\.json"):
        algorithm(tmp_path / "nowhere")


def pair(tmp_path, head=None, target=None, export=None, context=2048, digest=None):
    check_pair(
        directory(tmp_path / "target", {**TARGET, **(target or {})}),
        directory(tmp_path / "head", {**HEAD, **(head or {})}, export),
        context,
        digest,
    )


EXPORT = {"target_digest": "d1", "target_architecture": "LlamaForCausalLM", "num_hidden_layers": 8}


@pytest.mark.parametrize(
    "legal",
    [
        {},
        {"export": EXPORT, "digest": "d1"},
        {"export": EXPORT, "digest": None},
        {"head": {"draft_vocab_size": None}},
        {"head": {"hidden_size": 32, "target_hidden_size": 64}},
        {"head": {"max_position_embeddings": 2048}, "context": 2048},
    ],
)
def test_pairs_that_fit(tmp_path, legal):
    pair(tmp_path, **legal)


@pytest.mark.parametrize(
    ("illegal", "said"),
    [
        ({"head": {"max_position_embeddings": 2047}}, r"2047 is below server\.context_length=2048"),
        ({"head": {"draft_vocab_size": 513}}, "513 exceeds vocab_size=512"),
        ({"head": {"vocab_size": 511}}, "vocab_size=511, but .* has 512"),
        ({"head": {"hidden_size": 32}}, "hidden_size=32, but .* has 64"),
        ({"head": {"target_hidden_size": 128}}, "hidden_size=128"),
        ({"target": {"architectures": ["OlmoForCausalLM"]}}, "set_eagle3_layers_to_capture"),
        ({"export": EXPORT, "digest": "d2"}, "target_digest=d1, but .* has d2"),
        ({"export": {**EXPORT, "target_architecture": "Qwen3ForCausalLM"}}, "target_architecture=Qwen3ForCausalLM"),
        ({"export": {**EXPORT, "num_hidden_layers": 9}}, "num_hidden_layers=9"),
    ],
)
def test_pairs_that_do_not_fit(tmp_path, illegal, said):
    with pytest.raises(LabError, match=said):
        pair(tmp_path, **illegal)


def test_a_head_without_draft_vocab_size_is_refused(tmp_path):
    head = {k: v for k, v in HEAD.items() if k != "draft_vocab_size"}
    with pytest.raises(LabError, match="no draft_vocab_size"):
        check_pair(directory(tmp_path / "t", TARGET), directory(tmp_path / "h", head), 2048)


def test_the_table_agrees_with_the_installed_sglang():
    """By source: a class of the table is defined there, and its module names the method or a base class has it."""
    sglang = pytest.importorskip("importlib.util").find_spec("sglang")
    if sglang is None:
        pytest.skip("sglang is not installed")
    from pathlib import Path

    models = Path(sglang.submodule_search_locations[0]) / "srt" / "models"
    source = "\n".join(f.read_text() for f in models.glob("*.py"))
    missing = [name for name in CAPTURING_TARGETS if f"class {name}(" not in source]
    assert not missing
