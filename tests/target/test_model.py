"""Capture equals `output_hidden_states`, for each kind of class, and what cannot be captured is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from eagle_lab.config.errors import LabError
from eagle_lab.config.model_config import read_target
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.target.model import TargetModel

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
LATENT = {
    "kv_lora_rank": 8, "q_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 28, "patch_size": 14}  # fmt: skip


def config_of(architecture: str) -> transformers.PretrainedConfig:
    match architecture:
        case "LlamaForCausalLM":
            return transformers.LlamaConfig(**SIZES)
        case "Qwen3ForCausalLM":
            return transformers.Qwen3Config(**SIZES, tie_word_embeddings=True)
        case "DeepseekV3ForCausalLM":
            return transformers.DeepseekV3Config(**(SIZES | LATENT | {"head_dim": 4}))
        case "Gemma3ForConditionalGeneration":
            return transformers.Gemma3Config(text_config=SIZES, vision_config=VISION)
    raise AssertionError(architecture)


def made(architecture: str, directory: Path, config: transformers.PretrainedConfig | None = None) -> LocatedTarget:
    """A small random model of any transformers class, as a located target."""
    torch.manual_seed(0)
    getattr(transformers, architecture)(config or config_of(architecture)).save_pretrained(directory)
    return LocatedTarget(architecture, directory, "test", read_target(directory), "0" * 16)


def check_against_hidden_states(located: LocatedTarget, layers: list[int]) -> None:
    model = TargetModel(located, layers)
    ids = torch.randint(3, located.vocab_size, (2, 9), generator=torch.Generator().manual_seed(1))
    captured = model.capture(ids)
    with torch.no_grad():
        out = model.model(input_ids=ids, output_hidden_states=True)
    expected = torch.cat([out.hidden_states[k] for k in layers], dim=-1)
    assert captured.aux.shape == (2, 9, len(layers) * located.hidden_size)
    # the same operations in the same order: equal to the bit
    assert torch.equal(captured.aux, expected)
    assert torch.equal(captured.last, out.hidden_states[-1])
    torch.testing.assert_close(captured.last @ model.lm_head_weight.T, out.logits)


@pytest.mark.parametrize(
    "architecture",
    ["LlamaForCausalLM", "Qwen3ForCausalLM", "DeepseekV3ForCausalLM", "Gemma3ForConditionalGeneration"],
)
def test_capture_equals_output_hidden_states(architecture: str, tmp_path: Path) -> None:
    check_against_hidden_states(made(architecture, tmp_path), [1, 3, 6])


def test_capture_of_tiny(tiny: LocatedTarget) -> None:
    check_against_hidden_states(tiny, [2, 4, 5])


def test_capture_of_smollm2(smollm2: LocatedTarget) -> None:
    check_against_hidden_states(smollm2, [2, 15, 27])


def test_padding_changes_nothing(tiny: LocatedTarget) -> None:
    """No mask is given: what stands behind a row is seen by none of its tokens."""
    model = TargetModel(tiny, [2, 4, 5])
    ids = torch.arange(3, 11)[None]
    alone = model.capture(ids[:, :5])
    padded = model.capture(torch.cat([ids[:, :5], torch.zeros(1, 3, dtype=torch.int64)], 1))
    # another row length is another order of summation: 3e-5 seen, on streams of magnitude 10
    torch.testing.assert_close(padded.aux[:, :5], alone.aux, atol=2e-4, rtol=1e-4)


def test_two_threads_do_not_get_each_others_states(tiny: LocatedTarget) -> None:
    """As the thread that makes the next batch beside the held-out pass: seen to fail within seconds, unlocked."""
    model = TargetModel(tiny, [2, 4, 5])
    rows = [torch.randint(512, (1, length)) for length in (20, 20, 31)]
    alone = [model.capture(ids).aux for ids in rows]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(60):
            together = pool.map(lambda ids: model.capture(ids).aux, rows)
            assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_states_can_feed_a_layer_that_is_trained(tiny: LocatedTarget) -> None:
    """Inference tensors cannot: "Inference tensors cannot be saved for backward"."""
    model = TargetModel(tiny, [2, 4, 5])
    ids = torch.arange(3, 9)[None]
    captured = model.capture(ids)
    fc = torch.nn.Linear(3 * 64, 64)
    fc(captured.aux).sum().backward()
    assert fc.weight.grad is not None
    assert not any(p.requires_grad for p in model.model.parameters())
    assert not model._streams


def test_no_logits_are_computed(tiny: LocatedTarget) -> None:
    model = TargetModel(tiny, [2, 4, 5])
    model.model.lm_head.register_forward_hook(lambda *_: pytest.fail("lm_head ran"))
    ids = torch.arange(3, 9)[None]
    model.capture(ids)


def test_greedy_equals_generate(tiny: LocatedTarget) -> None:
    model = TargetModel(tiny, [2, 4, 5])
    prompt = torch.tensor([[5, 9, 200, 31]])
    args = {"do_sample": False, "max_new_tokens": 20, "min_new_tokens": 20, "eos_token_id": None}
    expected = model.model.generate(prompt, attention_mask=torch.ones_like(prompt), **args)[0, 4:].tolist()
    assert model.greedy(prompt[0].tolist(), 20) == expected


def test_weights_to_start_from(tmp_path: Path) -> None:
    model = TargetModel(made("Qwen3ForCausalLM", tmp_path), [1, 3, 6])
    weights = model.init_weights()
    assert weights["lm_head"].shape == (96, 32)
    assert weights["lm_head"] is model.embed_weight  # tied
    assert weights["norm"].shape == (32,)
    assert weights["layer.mlp.down_proj.weight"].shape == (32, 48)
    assert torch.equal(weights["layer.self_attn.q_proj.weight"], model.model.model.layers[6].self_attn.q_proj.weight)


def test_a_class_that_transformers_lacks(tiny: LocatedTarget) -> None:
    odd = replace(tiny, config=tiny.config | {"architectures": ["NoSuchForCausalLM"]})
    with pytest.raises(LabError, match="has no class NoSuchForCausalLM"):
        TargetModel(odd, [2, 4, 5])


def test_a_class_without_a_known_layer_list(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=7, n_head=4, n_positions=64)
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    merged = {**config.to_dict(), "architectures": ["GPT2LMHeadModel"], "num_hidden_layers": 7, "hidden_size": 32}
    with pytest.raises(LabError, match="GPT2LMHeadModel has no decoder of the known kind"):
        TargetModel(LocatedTarget("gpt2", tmp_path, "test", merged, "0" * 16), [1, 3, 6])


def test_a_class_that_changes_its_logits(tmp_path: Path) -> None:
    config = transformers.Gemma2Config(**SIZES, final_logit_softcapping=30.0)
    with pytest.raises(LabError, match="final_logit_softcapping"):
        TargetModel(made("Gemma2ForCausalLM", tmp_path, config), [1, 3, 6])


def test_broken_weights_are_named(tiny: LocatedTarget, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((tiny.path / "config.json").read_text())
    with pytest.raises(LabError, match="does not load as LlamaForCausalLM"):
        TargetModel(replace(tiny, path=tmp_path), [2, 4, 5])
