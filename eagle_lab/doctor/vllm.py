"""What vLLM makes of a head's config.json, by its source; no vLLM is run.

Read in vllm 0.33.0 (commit 4ba787ec9); files are named from vllm/ on. Its default is model runner V2
(config/vllm.py, use_v2_model_runner), which is the one judged; where the older V1 differs, that is said.
"""

from __future__ import annotations

from typing import Any

VERSION = "0.33.0"
LLAMA = frozenset(
    {
        *("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3MiniMaxM2ForCausalLM"),
        *("Eagle3Qwen2_5vlForCausalLM", "Eagle3Qwen3vlForCausalLM"),
    }
)
"""model_executor/models/registry.py: names that lead to the class of llama_eagle3.py."""
CLASSES = LLAMA | {"Eagle3Qwen3ForCausalLM", "Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"}
NESTED = {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"}
"""transformers_utils/configs/speculators/algos.py, update_eagle3: class by model_type of transformer_layer_config."""
RESIZED_ROPES = frozenset({"default", "linear", "llama3", "ntk", "proportional"})
"""config/speculative.py: with these, max_position_embeddings is raised to what is served."""
WITHOUT_DEFAULT = ("rms_norm_eps", "hidden_act", "vocab_size", "num_hidden_layers")
"""configs/speculators/base.py builds no LlamaConfig, so nothing fills them in."""
OUTER_IDS = "eagle_aux_hidden_state_layer_ids"


def is_nested(written: dict[str, Any]) -> bool:
    """Whether it is speculators' layout (transformers_utils/config.py): told by speculators_config, not by class."""
    return written.get("speculators_config") is not None and written.get("model_type") in (None, "speculators")


def flattened(written: dict[str, Any]) -> dict[str, Any]:
    """config.json as the model class sees it: speculators' layout has its layer's fields in a table of their own."""
    if not is_nested(written):
        return written
    inner = written.get("transformer_layer_config")
    c = dict(inner) if isinstance(inner, dict) else {}
    c |= {flag: written.get(flag, False) for flag in ("norm_before_fc", "fc_norm", "norm_output")}
    c["norm_before_residual"] = written.get("norm_before_residual", True)
    c["draft_vocab_size"] = written.get("draft_vocab_size")
    c |= {name: written[name] for name in ("target_hidden_size", OUTER_IDS) if written.get(name)}
    c["architectures"] = [NESTED.get(str(c.get("model_type", "llama")), "none")]
    return c


def layout_fault(written: dict[str, Any]) -> str | None:
    """Why vLLM would refuse a config.json in speculators' layout."""
    if (kind := written.get("speculators_model_type")) != "eagle3":
        return f"speculators_model_type={kind}"
    inner = written.get("transformer_layer_config")
    if not isinstance(inner, dict):
        return "no table transformer_layer_config"
    if (kind := inner.get("model_type", "llama")) not in NESTED:
        return f"transformer_layer_config has model_type={kind}"
    try:  # configs/speculators/base.py, validate_speculators_config
        said = written["speculators_config"]
        complete = said["proposal_methods"][0]["speculative_tokens"] and said["verifier"]["name_or_path"]
    except (KeyError, IndexError, TypeError):
        complete = None
    return None if complete else "speculators_config without proposal_methods[0].speculative_tokens or verifier"


def served_class(architecture: str) -> str:
    """The class that method eagle3 asks the registry for (transformers_utils/configs/eagle.py)."""
    known = architecture.startswith("Eagle3") or architecture.endswith("Eagle3")
    return architecture if known else f"Eagle3{architecture}"


def stated_ids(c: dict[str, Any]) -> Any:
    """What names the layers (v1/worker/gpu/spec_decode/eagle/eagle3_utils.py), in the canonical form; None: nothing.

    Runner V1 (v1/worker/gpu_model_runner.py) reads eagle_config.eagle_aux_hidden_state_layer_ids after the outer one,
    in the canonical form as well: ids that are written there for SGLang would be one too low.
    """
    inner = c.get("eagle_config")
    return c.get(OUTER_IDS) or (inner.get("layer_ids") if isinstance(inner, dict) else None) or None


def states_counted(c: dict[str, Any], inner_ids: list[int] | None) -> int:
    """How many aux states llama_eagle3.py makes fc for; the outer ids are not among what it counts."""
    stated = c.get("num_aux_hidden_states")
    return stated if isinstance(stated, int) else len(inner_ids) if inner_ids else 3
