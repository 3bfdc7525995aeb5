"""How a head starts: from the target's own weights, or random."""

from __future__ import annotations

import torch
from torch import Tensor

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import DraftInit
from eagle_lab.draft.head import Head


@torch.no_grad()
def initialise(head: Head, init: DraftInit, target_weights: dict[str, Tensor], seed: int) -> None:
    """Fills the head's parameters; d2t, t2d and embed must be set before.

    target_weights: `lm_head` [V, H], `norm` [H] and the last decoder layer's tensors under `layer.` with Hugging
    Face's names (`layer.self_attn.q_proj.weight` ...), as far as the target has them in a Llama's shape.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in head.parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)
        else:
            parameter.fill_(1.0)
    if init is DraftInit.target:
        _from_target(head, target_weights)


def _from_target(head: Head, weights: dict[str, Tensor]) -> None:
    """lm_head rows, final norm and the last layer; fc passes the highest aux state through.

    The head then starts as the target's last layer applied to a late residual stream, read by the target's own
    lm_head, instead of from noise. q, k and v read [embedding, hidden]: the hidden half is the target's, the
    embedding half stays small and random.
    """
    shape = head.shape
    ids = torch.arange(shape.draft_vocab_size) + head.d2t.cpu()
    if weights["lm_head"].shape[1] != shape.hidden_size:
        raise LabError(
            f"draft.init=target: the head's hidden size {shape.hidden_size} differs from the target's "
            f"{weights['lm_head'].shape[1]}. Use draft.init=random."
        )
    head.lm_head.weight.copy_(weights["lm_head"][ids])
    head.norm.weight.copy_(weights["norm"])
    layer = head.midlayer
    _copy(layer.hidden_norm.weight, weights.get("layer.input_layernorm.weight"))
    _copy(layer.post_attention_layernorm.weight, weights.get("layer.post_attention_layernorm.weight"))
    for name in ("q_proj", "k_proj", "v_proj"):
        hidden_half = getattr(layer.self_attn, name).weight[:, shape.hidden_size :]
        _copy(hidden_half, weights.get(f"layer.self_attn.{name}.weight"))
    _copy(layer.self_attn.o_proj.weight, weights.get("layer.self_attn.o_proj.weight"))
    for name in ("gate_proj", "up_proj", "down_proj"):
        _copy(getattr(layer.mlp, name).weight, weights.get(f"layer.mlp.{name}.weight"))
    head.fc.weight.zero_()
    head.fc.weight[:, -shape.target_hidden_size :].copy_(torch.eye(shape.hidden_size, shape.target_hidden_size))


def _copy(into: Tensor, source: Tensor | None) -> None:
    """A target of another shape (MoE, latent attention) shares only some tensors with a Llama layer."""
    if source is not None and source.shape == into.shape:
        into.copy_(source.to(into.dtype))
