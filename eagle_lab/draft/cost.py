"""What a training step costs, from sizes alone: multiply-adds and bytes.

The bytes are those of the Triton ops under bf16-mixed; the reference keeps more (attention scores above all).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eagle_lab.draft.shape import HeadShape


class Document(NamedTuple):
    tokens: int
    rows: int
    """Supervised positions, the last ones."""


BF16, FP32 = 2, 4
LOGITS_CHUNK = 140 << 20
"""Bytes of logits that the loss and the target's head hold at once."""


def layer_parameters(s: HeadShape) -> int:
    """Weights that every unroll step multiplies by, lm_head aside."""
    queries, keys = s.num_attention_heads * s.head_dim, s.num_key_value_heads * s.head_dim
    return s.hidden_size * (3 * queries + 4 * keys + 3 * s.intermediate_size)


def head_parameters(s: HeadShape) -> int:
    """fc, one layer over 2H inputs, norms, lm_head; the target's embeddings are not the head's."""
    fc = s.num_aux * s.target_hidden_size * s.hidden_size
    norms = 4 * s.hidden_size + (s.num_aux * s.target_hidden_size if s.fc_norm else 0)
    return fc + layer_parameters(s) + norms + s.draft_vocab_size * s.hidden_size


def step_flops(s: HeadShape, steps: int, documents: Iterable[Document], whole_teacher: bool = True) -> float:
    """Forward and backward of the head, all unroll steps, and the teacher; without the target's layers.

    Three products per weight, step and row (keys and values of step 0: per token), and the attention.
    whole_teacher: with log-sum-exp and argmax over the target's vocabulary, which stored states have already.
    """
    documents = list(documents)
    tokens, rows = sum(d.tokens for d in documents), sum(d.rows for d in documents)
    key_value = 4 * s.hidden_size * s.num_key_value_heads * s.head_dim
    fc = s.num_aux * s.target_hidden_size * s.hidden_size
    per_row = steps * (layer_parameters(s) + s.draft_vocab_size * s.hidden_size) - key_value
    products = 6.0 * (rows * per_row + tokens * (key_value + fc))
    attention = steps * sum(attention_flops(s, d) for d in documents)
    return products + attention + teacher_flops(s, rows, whole_teacher)


def attention_flops(s: HeadShape, document: Document) -> float:
    """Of one step: 2 products forward, 5 backward, over the pairs of rows and first keys."""
    pairs = document.rows * (document.tokens - 1 - (document.rows - 1) / 2)
    return 3.5 * 4 * pairs * s.num_attention_heads * s.head_dim


def teacher_flops(s: HeadShape, rows: int, whole: bool = True) -> float:
    return 2.0 * rows * ((s.vocab_size if whole else 0) + s.draft_vocab_size) * s.target_hidden_size


def state_bytes(s: HeadShape, tokens: int, rows: int) -> float:
    """A batch's target states: aux of every token, last hidden state of every row."""
    return BF16 * (tokens * s.num_aux * s.target_hidden_size + rows * s.target_hidden_size)


def kept_bytes(s: HeadShape, steps: int, tokens: int, rows: int) -> float:
    """What the forward pass keeps for the backward, the batch aside: at its end a step's memory is at its peak."""
    h, queries, keys = s.hidden_size, s.num_attention_heads * s.head_dim, s.num_key_value_heads * s.head_dim
    first = tokens * (4 * h + 2 * keys)  # fc's output, embeddings, their norms; keys and values
    # embedding, its norms (2H), attended sum, its norm, output, its norm, that one's gradient
    per_step = 8 * h + 2 * queries + 2 * s.intermediate_size
    # each step stacks the keys and values of all earlier ones
    stacks = 2 * keys * (steps + steps * (steps - 1) / 2)
    logits = rows * s.draft_vocab_size
    return BF16 * (first + rows * (steps * per_step + stacks) + logits) + LOGITS_CHUNK
