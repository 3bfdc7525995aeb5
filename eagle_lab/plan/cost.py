"""Memory, disk and time of a training, before anything starts.

Counted from sizes alone; `eagle-lab plan plan.measure=true` runs steps instead. Measured beside planned:
docs/training.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eagle_lab.config.gpus import Gpu
from eagle_lab.draft.cost import (
    BF16,
    FP32,
    Document,
    head_parameters,
    kept_bytes,
    state_bytes,
    step_flops,
)
from eagle_lab.draft.shape import HeadShape

OTHER = 0.5 * 2**30
"""Bytes: libraries' work space."""
HALF_SPEED_WIDTH = 1200
"""States of this width reach half of what wide ones do."""
HEAD_SHARE, TARGET_SHARE = 0.61, 0.87
"""Of the peak, with the widest states."""
OPTIMIZER_STATES = {"SGD": 0, "RMSprop": 1, "Adagrad": 1, "Adafactor": 0}
"""Numbers that torch's optimisers keep per weight; two where nothing is said."""


@dataclass(frozen=True)
class TargetSize:
    weights: float
    """Bytes."""
    layer_parameters: int
    """Of its decoder layers that a token passes, for multiply-adds."""
    hidden_size: int
    intermediate_size: int
    vocab_size: int


@dataclass(frozen=True)
class Training:
    """One GPU's part of it."""

    shape: HeadShape
    steps: int
    """Unroll steps."""
    documents: Sequence[Document]
    """Of one batch."""
    optimizer: str
    """Class name."""
    frozen_lm_head: bool
    target: TargetSize | None
    """None: not loaded, its states are stored."""
    spread: int = 1
    """GPUs that share the target's layers."""

    @property
    def tokens(self) -> int:
        return sum(d.tokens for d in self.documents)

    @property
    def rows(self) -> int:
        return sum(d.rows for d in self.documents)


def memory(t: Training) -> dict[str, float]:
    """Bytes on the GPU at a step's peak, by what they hold."""
    s = t.shape
    head, lm_head = head_parameters(s), s.draft_vocab_size * s.hidden_size
    trained = head - (lm_head if t.frozen_lm_head else 0)
    # the last step's are still there when the loss makes lm_head's anew
    gradients = trained + (0 if t.frozen_lm_head else lm_head)
    states = OPTIMIZER_STATES.get(t.optimizer, 2)
    batch = state_bytes(s, t.tokens, t.rows)
    return {
        "target": t.target.weights / t.spread if t.target else 0.0,
        "target's embeddings and draft rows": BF16 * (s.vocab_size + s.draft_vocab_size) * s.hidden_size,
        "head and its copy in bf16": (FP32 + BF16) * head,
        "gradients": FP32 * gradients,
        "optimiser": FP32 * states * trained,
        "batch, and the next one": 2 * batch + (_passing(t.target, t.tokens) if t.target else 0.0),
        "kept for the backward": kept_bytes(s, t.steps, t.tokens, t.rows),
        "other": OTHER,
    }


def _passing(target: TargetSize, tokens: int) -> float:
    """What the target's own pass holds at once: an MLP's three states, some residual streams."""
    return BF16 * tokens * (3 * target.intermediate_size + 4 * target.hidden_size)


def features_bytes(shape: HeadShape, tokens: int, rows: int) -> float:
    """Stored states: what a batch has, log-sum-exp and argmax with it."""
    return state_bytes(shape, tokens, rows) + 8.0 * rows


def step_seconds(t: Training, gpu: Gpu) -> float:
    """Multiply-adds at the share of the GPU's peak that products of this width reach, all else of a step in it.

    Fitted to four trainings on one H200 (docs/training.md): the head's steps reach 47 % of the peak with 4,096 wide
    states and 20 % with 576 wide ones, the target's pass 67 % and 28 %.
    """
    reached = HEAD_SHARE * _flop_s(t.shape.hidden_size, gpu)
    taken = step_flops(t.shape, t.steps, t.documents, whole_teacher=False) / reached
    return taken + (pass_seconds(t.target, t.tokens, t.rows, gpu) if t.target else 0.0)


def pass_seconds(target: TargetSize, tokens: int, rows: int, gpu: Gpu) -> float:
    """Of the target's own pass; one that is spread over several GPUs has one of them at work at a time."""
    teacher = 2.0 * target.vocab_size * target.hidden_size * rows
    reached = TARGET_SHARE * _flop_s(target.hidden_size, gpu)
    return (2.0 * target.layer_parameters * tokens + teacher) / reached


def _flop_s(width: int, gpu: Gpu) -> float:
    return gpu.tflop_s * 1e12 * width / (width + HALF_SPEED_WIDTH)
