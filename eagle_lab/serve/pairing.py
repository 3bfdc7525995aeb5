"""Which head may be served with which target, decided from their config.json files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.model_config import read_config, read_export, read_head, read_target

# sglang 0.5.15-0.5.20, srt/models/llama_eagle3.py and kimi_k25_eagle3.py
EAGLE3_HEADS = frozenset({"LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"})

# classes of sglang 0.5.20's model registry that have set_eagle3_layers_to_capture and get_embed_and_head; those that
# import only on a GPU host were read from source
CAPTURING_TARGETS = frozenset(
    {
        "ApertusForCausalLM",
        "BailingMoEForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "ExaoneMoEForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "GptOssForCausalLM",
        "IQuestCoderForCausalLM",
        "InternLM3ForCausalLM",
        "InternS1ProForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "LlamaForCausalLM",
        "LongcatFlashForCausalLM",
        "MellumForCausalLM",
        "MiniMaxM2ForCausalLM",
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
        "Ministral3ForCausalLM",
        "MistralForCausalLM",
        "MistralLarge3ForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "SarvamMoEForCausalLM",
        "TeleFLMForCausalLM",
    }
)


def algorithm(head: Path) -> str:
    """SGLang's algorithm for this head, derived from its class: EAGLE3 or a LabError, never typed by anyone.

    SGLang itself takes `EAGLE` for an EAGLE-3 head without a word: it then skips the head's fc, replaces its lm_head
    by the target's and accepts next to nothing.
    """
    found = read_config(head).get("architectures") or ["none"]
    if (found[0] if isinstance(found, list) else found) not in list(EAGLE3_HEADS):
        raise LabError(
            f"{head}/config.json: architectures={found}: not an EAGLE-3 head. SGLang's EAGLE-3 classes are "
            f"{', '.join(sorted(EAGLE3_HEADS))}; heads of other trainers must be converted to one of them first."
        )
    return "EAGLE3"


def check_pair(target: Path, head: Path, context_length: int, target_digest: str | None = None) -> None:
    """Raises LabError for a head that this target cannot serve, or could serve only to reject what it drafts.

    target_digest: the target's digest, compared with the one that the exporter wrote beside the head.
    """
    algorithm(head)
    config, own = read_target(target), read_head(head)
    check_target(target, config["architectures"][0])
    _check_sizes(head, own, target, config)
    positions = own.get("max_position_embeddings")
    if positions is not None and positions < context_length:
        raise LabError(
            f"{head}: max_position_embeddings={positions} is below server.context_length={context_length}: past that "
            f"point drafts are garbage or the server dies. Set server.context_length={positions}."
        )
    _check_export(head, read_export(head), target, config, target_digest)


def check_target(target: Path, architecture: str) -> None:
    """Raises LabError for a class whose aux states SGLang cannot capture: a head for it could never be served."""
    if architecture not in CAPTURING_TARGETS:
        raise LabError(
            f"{target}: SGLang is not known to capture aux hidden states in {architecture}. To check, look whether its "
            "class in sglang/srt/models/ has set_eagle3_layers_to_capture and get_embed_and_head (or inherits both); "
            "if so, add it to CAPTURING_TARGETS in eagle_lab/serve/pairing.py. Without them no EAGLE-3 head can be "
            "served."
        )


def _check_sizes(head: Path, own: dict[str, Any], target: Path, config: dict[str, Any]) -> None:
    if "draft_vocab_size" not in own:
        raise LabError(f"{head}/config.json has no draft_vocab_size: SGLang's class reads it. Export the head again.")
    drafted = own["draft_vocab_size"]
    if drafted is not None and drafted > own["vocab_size"]:
        raise LabError(f"{head}: draft_vocab_size={drafted} exceeds vocab_size={own['vocab_size']}.")
    pairs = {
        "vocab_size": (own.get("vocab_size"), config.get("vocab_size")),
        "hidden_size": (own.get("target_hidden_size", own.get("hidden_size")), config.get("hidden_size")),
    }
    for field, (of_head, of_target) in pairs.items():
        if of_head != of_target:
            raise LabError(
                f"{head} was made for a target with {field}={of_head}, but {target} has {of_target}. "
                "Serve it with the target it was trained for."
            )


def _check_export(
    head: Path, export: dict[str, Any], target: Path, config: dict[str, Any], target_digest: str | None
) -> None:
    actual = {
        "target_architecture": config["architectures"][0],
        "num_hidden_layers": config.get("num_hidden_layers"),
        "target_digest": target_digest,
    }
    for field, value in actual.items():
        if value is not None and field in export and export[field] != value:
            raise LabError(
                f"{head}/export.json: exported for a target with {field}={export[field]}, but {target} has {value}. "
                "Serve it with the target it was trained for."
            )
