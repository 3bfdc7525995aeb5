"""What a config stands for, in numbers, before anything starts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from eagle_lab.config.aux_layers import resolve, sglang_ids
from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config, TargetFacts
from eagle_lab.draft.cost import head_parameters
from eagle_lab.draft.shape import HeadShape


def facts_of(target: dict[str, Any]) -> TargetFacts:
    """Of a target without a preset: its own config.json knows."""
    names = [f.name for f in fields(TargetFacts) if f.name != "architecture"]
    return TargetFacts(architecture=target["architectures"][0], **{k: target.get(k) for k in names})


def checked(config: Config, facts: TargetFacts) -> tuple[int, str]:
    """(decoder layers, architecture). LabError for a fact that is missing."""
    needed = ("architecture", "num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads")
    missing = [k for k in needed if getattr(facts, k) is None]
    if missing:
        raise LabError(f"target {config.target.name}: unknown {', '.join(missing)}. Set target.facts.{missing[0]}=...")
    assert facts.num_hidden_layers is not None
    assert facts.architecture is not None
    return facts.num_hidden_layers, facts.architecture


def resolved(config: Config, facts: TargetFacts, shape: HeadShape) -> dict[str, Any]:
    """Label -> value, in the order in which a reader asks. Raises LabError when a rule cannot be met."""
    layers, architecture = checked(config, facts)
    canonical = resolve(config.aux, layers)
    spec = config.spec
    numbers = f"num_steps {spec.num_steps}, eagle_topk {spec.eagle_topk}, num_draft_tokens {spec.num_draft_tokens}"
    return {
        "target": f"{config.target.name} ({architecture})",
        "layers, hidden, vocabulary": f"{layers}, {facts.hidden_size}, {facts.vocab_size}",
        "aux layers, canonical": canonical,
        "aux layers, SGLang ids": sglang_ids(canonical, architecture),
        "fused width": shape.num_aux * shape.target_hidden_size,
        "draft vocab": shape.draft_vocab_size,
        "head parameters": head_parameters(shape),
        "training-time test steps": config.loss.unroll_steps,
        "speculation": "none" if spec.num_draft_tokens is None else f"{spec.kind.value}: {numbers}",
        "served with": "EAGLE3" if spec.num_draft_tokens is not None else "no speculation",
    }
