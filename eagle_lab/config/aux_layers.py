"""Aux layer ids: one canonical form, one conversion per engine.

Canonical id k = Hugging Face `hidden_states[k]` = the residual stream that enters layer k (0 = the embeddings).
"""

from __future__ import annotations

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Aux, AuxRule

# sglang 0.5.15-0.5.20, models/deepseek_v2.py and glm4_moe_lite.py: set_eagle3_layers_to_capture adds 1 to the ids only
# when the first one is 1; every other class adds 1 always.
ADDS_ONE_ONLY_AFTER_1 = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "MistralLarge3ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "KimiK2ForCausalLM",
        "KimiK25ForConditionalGeneration",
        "Glm4MoeLiteForCausalLM",
    }
)


def default_layers(num_hidden_layers: int) -> list[int]:
    """The paper's choice, canonical, and what engines capture for a head that names none: sglang 0.5.20,
    models/llama.py; vllm 0.33.0, model_executor/models/interfaces.py, get_eagle3_default_aux_hidden_state_layers.
    """
    return [2, num_hidden_layers // 2, num_hidden_layers - 3]


def resolve(aux: Aux, num_hidden_layers: int) -> list[int]:
    """Canonical ids, ascending, for a target of n layers; each within 1..n-1, at least two, no duplicates.

    Raises LabError when the target is too shallow for the rule or an id cannot be captured.
    """
    n = num_hidden_layers
    ids = {
        AuxRule.low_mid_high: default_layers(n),
        AuxRule.last_three: [n - 3, n - 2, n - 1],
        AuxRule.quarters: [n // 4, n // 2, 3 * n // 4],
        AuxRule.explicit: aux.layers or [],
    }[aux.rule]
    where = f"aux={aux.rule.value} gives layers {ids} on a target of {n} layers"
    if aux.rule is not AuxRule.explicit and (ids != sorted(set(ids)) or ids[0] < 1):
        raise LabError(
            f"{where}: too few layers for this rule (SGLang would capture fewer states than the head expects). "
            "Use a target of at least 7 layers, or aux=explicit aux.layers=[...]."
        )
    if len(ids) < 2:
        raise LabError(
            f"{where}: with a single aux layer SGLang skips the head's fc without a word, and the width probe cannot "
            "see it. Give at least two layers."
        )
    if ids != sorted(set(ids)):
        raise LabError(f"{where}: ids must be ascending and distinct (SGLang captures in layer order).")
    bad = [k for k in ids if not 1 <= k <= n - 1]
    if bad:
        raise LabError(
            f"{where}: {bad} cannot be captured. Canonical ids are the stream entering layer k, 1 to {n - 1} here; "
            f"the output of the last layer (k = {n}) is never captured by SGLang."
        )
    return ids


def captured_by_sglang(ids: list[int], architecture: str) -> list[int]:
    """The canonical layers that SGLang captures for these ids of `eagle_config`."""
    if architecture in ADDS_ONE_ONLY_AFTER_1 and ids[0] != 1:
        return list(ids)
    return [k + 1 for k in ids]


def sglang_ids(canonical: list[int], architecture: str) -> list[int]:
    """Ids to write into `eagle_config` so that SGLang captures the canonical streams of this target class.

    Raises LabError for lists that the class cannot express.
    """
    if architecture in ADDS_ONE_ONLY_AFTER_1 and canonical[0] != 2:
        if canonical[0] == 1:
            raise LabError(
                f"aux layers {canonical} on {architecture}: SGLang reads a first id of 1 as 'add one to all', so the "
                "stream entering layer 1 cannot be asked for. Start at layer 2 or later."
            )
        return list(canonical)
    return [k - 1 for k in canonical]
