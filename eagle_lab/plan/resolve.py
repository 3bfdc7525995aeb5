"""What a config stands for, in numbers, before anything starts."""

from __future__ import annotations

from typing import Any

from eagle_lab.config.aux_layers import resolve, sglang_ids
from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config, TargetFacts


def head_parameters(config: Config, facts: TargetFacts, num_aux: int) -> int:
    """Trained parameters of the EAGLE-3 head (fc, one layer over 2H inputs, norms, lm_head)."""
    d, hidden, heads = config.draft, facts.hidden_size, facts.num_attention_heads
    assert hidden is not None
    assert heads is not None
    q = d.num_attention_heads or heads
    kv = d.num_key_value_heads or facts.num_key_value_heads or q
    dim = d.head_dim or hidden // heads
    mlp = d.intermediate_size or facts.intermediate_size or 4 * hidden
    attention = 2 * hidden * (q + 2 * kv) * dim + q * dim * hidden
    return num_aux * hidden * hidden + attention + 3 * hidden * mlp + 4 * hidden + d.vocab_size * hidden


def resolved(config: Config, facts: TargetFacts) -> dict[str, Any]:
    """Label -> value, in the order in which a reader asks. `facts` must be complete.

    Raises LabError when a fact is missing or a rule cannot be met.
    """
    needed = ("architecture", "num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads")
    missing = [k for k in needed if getattr(facts, k) is None]
    if missing:
        raise LabError(f"target {config.target.name}: unknown {', '.join(missing)}. Set target.facts.{missing[0]}=...")
    assert facts.num_hidden_layers is not None
    assert facts.architecture is not None
    assert facts.hidden_size is not None
    canonical = resolve(config.aux, facts.num_hidden_layers)
    spec = config.spec
    numbers = f"num_steps {spec.num_steps}, eagle_topk {spec.eagle_topk}, num_draft_tokens {spec.num_draft_tokens}"
    return {
        "target": f"{config.target.name} ({facts.architecture})",
        "layers, hidden, vocabulary": f"{facts.num_hidden_layers}, {facts.hidden_size}, {facts.vocab_size}",
        "aux layers, canonical": canonical,
        "aux layers, SGLang ids": sglang_ids(canonical, facts.architecture),
        "fused width": len(canonical) * facts.hidden_size,
        "draft vocab": config.draft.vocab_size,
        "head parameters": head_parameters(config, facts, len(canonical)),
        "training-time test steps": config.loss.unroll_steps,
        "speculation": "none" if spec.num_draft_tokens is None else f"{spec.kind.value}: {numbers}",
        "served with": "EAGLE3" if spec.num_draft_tokens is not None else "no speculation",
    }
