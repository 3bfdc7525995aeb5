"""The EAGLE-3 draft head: fc over the aux states, one decoder layer over [embedding, hidden], norm, lm_head.

Parameter names are the export's names (SGLang, srt/models/llama_eagle3.py), so a state dict is an export.
Source: EAGLE-3 (arXiv 2503.01840), SafeAILab/EAGLE eagle/model/cnets.py.

Shape suffixes: T packed tokens, N rows (supervised positions), H hidden, A aux states, Vd draft vocab.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from eagle_lab.draft.shape import HeadShape
from eagle_lab.ops.dispatch import OpSet
from eagle_lab.ops.product.reference import Product
from eagle_lab.ops.unroll_attention.layout import Layout

if TYPE_CHECKING:
    from eagle_lab.draft.unroll import Batch


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    """Holds an RMSNorm weight; the op runs it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))


class Attention(nn.Module):
    def __init__(self, s: HeadShape) -> None:
        super().__init__()
        self.q_proj = linear(2 * s.hidden_size, s.num_attention_heads * s.head_dim)
        self.k_proj = linear(2 * s.hidden_size, s.num_key_value_heads * s.head_dim)
        self.v_proj = linear(2 * s.hidden_size, s.num_key_value_heads * s.head_dim)
        self.o_proj = linear(s.num_attention_heads * s.head_dim, s.hidden_size)


class MLP(nn.Module):
    def __init__(self, s: HeadShape) -> None:
        super().__init__()
        self.gate_proj = linear(s.hidden_size, s.intermediate_size)
        self.up_proj = linear(s.hidden_size, s.intermediate_size)
        self.down_proj = linear(s.intermediate_size, s.hidden_size)


class MidLayer(nn.Module):
    def __init__(self, s: HeadShape) -> None:
        super().__init__()
        self.self_attn = Attention(s)
        self.mlp = MLP(s)
        self.hidden_norm = Norm(s.hidden_size)
        self.input_layernorm = Norm(s.hidden_size)
        self.post_attention_layernorm = Norm(s.hidden_size)


class Head(nn.Module):
    """Draft head of one target. `embed` [V, H] is the target's and is neither trained nor saved.

    Buffers: d2t int64 [Vd] (target id - draft id), t2d bool [V].
    """

    d2t: Tensor
    t2d: Tensor
    embed: Tensor

    def __init__(self, shape: HeadShape, ops: OpSet | None = None) -> None:
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # two seconds, not for every import

        super().__init__()
        self.shape = shape
        self.ops = ops or OpSet()
        self.fc = linear(shape.num_aux * shape.target_hidden_size, shape.hidden_size)
        if shape.fc_norm:
            self.fc_norm = nn.ModuleList(Norm(shape.target_hidden_size) for _ in range(shape.num_aux))
        self.midlayer = MidLayer(shape)
        self.norm = Norm(shape.hidden_size)
        self.lm_head = linear(shape.hidden_size, shape.draft_vocab_size)
        self.rotary = LlamaRotaryEmbedding(shape.llama_config())
        self.register_buffer("d2t", torch.zeros(shape.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(shape.vocab_size, dtype=torch.bool))
        self.register_buffer("embed", torch.empty(0), persistent=False)

    def forward(self, batch: Batch, steps: int) -> list[Tensor]:
        """Of each step the normed hidden state [N, H] that lm_head reads: what `unroll` yields."""
        from eagle_lab.draft.unroll import unroll

        return list(unroll(self, batch, steps))

    def first_hidden(self, aux: Tensor) -> Tensor:
        """[T, H]: what the first step takes as hidden state, from the aux states [T, A*H]."""
        aux = aux.to(self.fc.weight.dtype)
        if self.shape.fc_norm:
            norms: Any = self.fc_norm
            parts = zip(aux.chunk(self.shape.num_aux, -1), norms, strict=True)
            aux = torch.cat([self.rms(part, norm) for part, norm in parts], -1)
        hidden: Tensor = self.fc(aux)
        return hidden

    def rms(self, x: Tensor, norm: Norm) -> Tensor:
        return self.ops.rms_norm(x, norm.weight, self.shape.rms_norm_eps)

    def products(self) -> dict[str, Product]:
        """The layer's products by name (q_proj, ..., down_proj), for all steps of one forward pass."""
        modules = {**self.midlayer.self_attn._modules, **self.midlayer.mlp._modules}
        return {name: self.ops.product(m.weight) for name, m in modules.items() if isinstance(m, nn.Linear)}

    def keys_values(self, by: dict[str, Product], x_N2H: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys and values, each [N, kv_heads, D], of the layer's input at these positions [N]."""
        s = self.shape
        k = by["k_proj"](x_N2H).view(-1, s.num_key_value_heads, s.head_dim)
        v = by["v_proj"](x_N2H).view(-1, s.num_key_value_heads, s.head_dim)
        return self.ops.rope(k, *self.cos_sin(positions, k)), v

    def cos_sin(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.rotary(like, positions[None])
        return cos[0], sin[0]

    def layer_input(self, token_ids: Tensor, hidden: Tensor) -> Tensor:
        """[N, 2H]: the normed embedding first, then the normed hidden state."""
        embedded = nn.functional.embedding(token_ids, self.embed).to(hidden.dtype)
        layer = self.midlayer
        weights = layer.input_layernorm.weight, layer.hidden_norm.weight
        return self.ops.norm_pair(embedded, hidden, *weights, self.shape.rms_norm_eps)

    def layer_output(
        self,
        by: dict[str, Product],
        x_N2H: Tensor,
        hidden_NH: Tensor,
        positions: Tensor,
        first: tuple[Tensor, Tensor],
        chain: list[tuple[Tensor, Tensor]],
        layout: Layout,
    ) -> Tensor:
        """Un-normed hidden state [N, H] after the layer: logits come from it, and the next step takes it as input."""
        s = self.shape
        q = by["q_proj"](x_N2H).view(-1, s.num_attention_heads, s.head_dim)
        q = self.ops.rope(q, *self.cos_sin(positions, q))
        attended = self.ops.unroll_attention(q, *first, chain, layout).flatten(1)
        norm = self.midlayer.post_attention_layernorm.weight
        residual, x = self.ops.add_rms_norm(by["o_proj"](attended), hidden_NH, norm, s.rms_norm_eps)
        gate, up = by["gate_proj"](x), by["up_proj"](x)
        # what down_proj multiplies is the largest state of a step, and made again from the two that are kept anyway
        return residual + by["down_proj"](self.ops.swiglu(gate, up), self.ops.swiglu, gate, up)

    @classmethod
    def with_tensors(cls, shape: HeadShape, tensors: dict[str, Tensor], embed: Tensor) -> Head:
        """A head for inference in float32 on embed's device, with the reference ops: what others are compared with."""
        head = cls(shape)
        head.load_state_dict(tensors)
        head.embed = embed.float()
        return head.float().to(embed.device).eval()

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Target vocabulary ids of draft ids."""
        return draft_ids + self.d2t[draft_ids]
