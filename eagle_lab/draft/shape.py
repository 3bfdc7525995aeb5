"""Sizes and options of a head: from a target's config.json, or read back from an exported head."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Draft

if TYPE_CHECKING:
    from transformers import LlamaConfig


@dataclass(frozen=True)
class HeadShape:
    hidden_size: int
    target_hidden_size: int
    num_aux: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_parameters: dict[str, Any] = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    fc_norm: bool = False
    """An RMSNorm of its own for each aux state, before fc (EAGLE-3.1)."""
    norm_output: bool = False
    """The next step takes the normed hidden state instead of the layer's own output (EAGLE-3.1)."""

    def llama_config(self) -> LlamaConfig:
        """The transformers config that gives the rotary embedding (all rope types) the head's sizes."""
        from transformers import LlamaConfig  # two seconds, which a check of files does not need

        return LlamaConfig(
            hidden_size=self.hidden_size,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            max_position_embeddings=self.max_position_embeddings,
            rope_parameters=dict(self.rope_parameters),
        )


def head_shape(draft: Draft, target: dict[str, Any], num_aux: int) -> HeadShape:
    """The head of `draft` for a target with this config.json (text part); the target's value wherever draft has null.

    Raises LabError when the draft vocabulary is larger than the target's, or the sizes cannot make a layer.
    """
    needed = ("num_attention_heads", "intermediate_size", "max_position_embeddings")
    missing = [f"draft.{name}" for name in needed if not getattr(draft, name) and not target.get(name)]
    if missing:
        raise LabError(f"the target's config.json gives no value for {', '.join(missing)}. Set it in the draft config.")
    hidden, heads = target["hidden_size"], draft.num_attention_heads or target["num_attention_heads"]
    kv = draft.num_key_value_heads or min(heads, target.get("num_key_value_heads") or heads)
    if draft.vocab_size > target["vocab_size"]:
        raise LabError(
            f"draft.vocab_size={draft.vocab_size} is larger than the target's vocabulary ({target['vocab_size']}). "
            f"Set draft.vocab_size to at most {target['vocab_size']}."
        )
    if heads % kv:
        raise LabError(f"draft: {heads} attention heads are no multiple of {kv} key/value heads. Set both in draft.*.")
    # multi-head latent attention (DeepSeek, Kimi) states no head_dim that a Llama layer could use
    dim = draft.head_dim or (None if "kv_lora_rank" in target else target.get("head_dim")) or hidden // heads
    return HeadShape(
        hidden_size=hidden,
        target_hidden_size=hidden,
        num_aux=num_aux,
        intermediate_size=draft.intermediate_size or target["intermediate_size"],
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=dim,
        vocab_size=target["vocab_size"],
        draft_vocab_size=draft.vocab_size,
        max_position_embeddings=draft.max_position_embeddings or target["max_position_embeddings"],
        rms_norm_eps=target.get("rms_norm_eps", 1e-6),
        rope_parameters=rope_parameters(target),
        fc_norm=draft.fc_norm,
        norm_output=draft.norm_output,
    )


def rope_parameters(config: dict[str, Any]) -> dict[str, Any]:
    """transformers 5's `rope_parameters`, also from the older `rope_theta` + `rope_scaling` pair."""
    found = dict(config.get("rope_parameters") or {})
    if not found:
        scaling = dict(config.get("rope_scaling") or {})
        found = {"rope_type": scaling.pop("type", scaling.pop("rope_type", "default")), **scaling}
    found.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    found.setdefault("rope_type", "default")
    return found
