"""Heads as other trainers write them: fields and tensor names of their own exporters, each for the engines it is for.

Each turns our good head's config.json and tensors (changed in place) into that layout. None says what it was trained
on: export.json is taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from eagle_lab.config.schema import Engine

Config, Tensors = dict[str, Any], dict[str, Tensor]
SGLANG, VLLM = Engine.sglang, Engine.vllm
SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size", "rms_norm_eps")


@dataclass(frozen=True)
class Layout:
    name: str
    source: str
    write: Callable[[Config, Tensors], None]
    engines: tuple[Engine, ...]
    pickled: bool = False
    """In pytorch_model.bin."""
    embedding: bool = False
    """With the target's embedding in the file."""


def only(c: Config, *names: str, **fields: Any) -> None:
    """Nothing but these, and the sizes."""
    kept = {name: c[name] for name in (*SIZES, *names)}
    c.clear()
    c.update({**kept, "num_hidden_layers": 1, "hidden_act": "silu", **fields})


def by_layers(t: Tensors, prefix: str = "") -> None:
    for name in [n for n in t if n.startswith("midlayer.")]:
        t[prefix + name.replace("midlayer", "layers.0")] = t.pop(name)


def official(c: Config, t: Tensors) -> None:
    """No ids, no rope, no head_dim; float16; 2,048 positions; the target's class."""
    only(
        c,
        "draft_vocab_size",
        architectures=["LlamaForCausalLM"],
        **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.02, "model_type": "llama"},
        **{"max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "float16"},
        **{"transformers_version": "4.28.1", "use_cache": True},
    )


def official_for_sglang(c: Config, t: Tensors) -> None:
    official(c, t)
    c["architectures"] = ["LlamaForCausalLMEagle3"]


def specforge(c: Config, t: Tensors) -> None:
    """The older rope names, no ids where its default layers were trained."""
    only(
        c,
        *("draft_vocab_size", "head_dim", "rope_theta"),
        architectures=["LlamaForCausalLMEagle3"],
        **{"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2},
        **{"initializer_range": 0.02, "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "llama"},
        **{"rope_scaling": None, "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
        **{"transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False},
    )


def specforge_3_1(c: Config, t: Tensors) -> None:
    """EAGLE-3.1: a norm per aux state, the normed state fed back."""
    specforge(c, t)
    c.update(fc_norm=True, norm_output=True)
    t.update({f"fc_norm.{i}.weight": t["norm.weight"].clone() for i in range(3)})


def modelopt(c: Config, t: Tensors) -> None:
    """Ids as layer outputs, layers.0 instead of midlayer, no t2d."""
    only(
        c,
        *("draft_vocab_size", "head_dim", "rope_theta", "max_position_embeddings"),
        architectures=["LlamaForCausalLMEagle3"],
        **{
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": None,
            "initializer_range": 0.02,
            "model_type": "llama",
        },
        **{"tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "5.3.0", "use_cache": True},
        **{"rope_scaling": None, "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False},
        pretraining_tp=1,
        eagle_config={
            "eagle_aux_hidden_state_layer_ids": [1, 3, 4],
            "use_aux_hidden_state": True,
            "use_input_layernorm_in_first_layer": True,
            "use_last_layernorm": True,
            "use_mtp_layernorm": False,
            "next_layer_regular": True,
            "parallel_draft_step": 1,
            "parallel_draft_heads_num_layers": 1,
        },
    )
    t.pop("t2d")
    by_layers(t)


def nested(c: Config, version: str, *names: str, layer: Config, **fields: Any) -> None:
    """speculators' config.json around a transformer_layer_config."""
    size = c["draft_vocab_size"]
    only(c, *names, **{"model_type": "llama", "head_dim": c["head_dim"], "attention_bias": False, "mlp_bias": False})
    inner = {**c, **layer}
    c.clear()
    c.update(
        draft_vocab_size=size,
        speculators_model_type="eagle3",
        speculators_version=version,
        transformer_layer_config=inner,
        speculators_config={
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {"proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1, "accept_tolerance": 0.0}
            ],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "org/name"},
        },
        target_hidden_size=None,
        **fields,
    )


def speculators(c: Config, t: Tensors) -> None:
    """Layer's fields in a table, canonical ids outside; one norm before fc, the target's embedding in the file."""
    nested(
        c,
        "0.7.0.1",
        *("rope_parameters", "max_position_embeddings"),
        layer={"initializer_range": 0.02, "pretraining_tp": 1, "tie_word_embeddings": False, "use_cache": True},
        architectures=["Eagle3DraftModel"],
        **{"norm_before_residual": True, "norm_before_fc": True, "fc_norm": False, "norm_output": True},
        **{"eagle_aux_hidden_state_layer_ids": [2, 4, 5], "embed_requires_grad": False, "dtype": "bfloat16"},
        transformers_version="5.8.1",
    )
    by_layers(t)
    t["input_norm.weight"] = t["norm.weight"].repeat(3)


def speculators_0_1(c: Config, t: Tensors) -> None:
    """As published first: no ids, norm_before_residual; what ModelOpt's converter for vLLM writes, too."""
    nested(
        c,
        "0.1.0.dev14",
        *("rope_theta", "max_position_embeddings"),
        layer={"rope_scaling": None, "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True},
        architectures=["Eagle3Speculator"],
        auto_map={"": "eagle3.Eagle3SpeculatorConfig"},
        has_no_defaults_at_init=False,
        norm_before_residual=True,
        **{"torch_dtype": "bfloat16", "transformers_version": "4.53.2"},
    )
    by_layers(t)


def part_of_a_model(c: Config, t: Tensors) -> None:
    by_layers(t, "model.")


LAYOUTS = (
    Layout("EAGLE's own", "SafeAILab/EAGLE cb7e084, eagle/traineagle3", official, (VLLM,), pickled=True),
    Layout("EAGLE's own, renamed for SGLang", "the same", official_for_sglang, (SGLANG, VLLM), pickled=True),
    Layout(
        "SpecForge's",
        "sgl-project/SpecForge a6b6b02, configs/qwen3-8b-eagle3.json",
        specforge,
        (SGLANG, VLLM),
        embedding=True,
    ),
    Layout("SpecForge's EAGLE-3.1", "configs/qwen3-30B-A3B-eagle3.1.json", specforge_3_1, (SGLANG, VLLM)),
    Layout("ModelOpt's", "NVIDIA/Model-Optimizer a2fbac7, export/plugins/hf_spec_configs.py", modelopt, (SGLANG, VLLM)),
    Layout("ModelOpt's and Red Hat's for vLLM", "scripts/convert_to_vllm_ckpt.py", speculators_0_1, (VLLM,)),
    Layout(
        "speculators'",
        "vllm-project/speculators c05b95b, models/eagle3/config.py",
        speculators,
        (VLLM,),
        embedding=True,
    ),
    Layout("a model's part", "tensors under `model.`", part_of_a_model, (SGLANG,)),
)
