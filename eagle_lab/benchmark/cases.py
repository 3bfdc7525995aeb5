"""What is timed: each op, and the whole training step, at the sizes of a head that the config names.

Every case counts the bytes that it must move and the multiply-adds that it must do, so that a time can be held against
the machine's roofline: inputs are read and outputs written once, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eagle_lab.config.schema import Loss, Optim
from eagle_lab.draft.cost import Document, attention_flops, step_flops, teacher_flops
from eagle_lab.draft.head import Head
from eagle_lab.draft.shape import HeadShape
from eagle_lab.draft.unroll import Batch
from eagle_lab.ops.dispatch import OpSet
from eagle_lab.ops.distill_loss.losses import Objective
from eagle_lab.ops.unroll_attention.layout import Layout
from eagle_lab.train.module import HeadModule

EPS = 1e-5


@dataclass(frozen=True)
class Sizes:
    shape: HeadShape
    tokens: int
    """Of one document."""
    supervised: float
    """Share of them that are rows: the last ones, as in a chat's answer."""
    steps: int
    dtype: torch.dtype
    device: torch.device

    @property
    def rows(self) -> int:
        return max(1, round(self.tokens * self.supervised) - 1)

    def random(self, *shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=torch.float32).mul_(scale).to(self.dtype).requires_grad_()

    def layout(self) -> Layout:
        at = torch.arange(self.tokens - 1 - self.rows, self.tokens - 1, device=self.device)
        return Layout(torch.tensor([0, self.tokens], device=self.device), torch.zeros_like(at), at)

    @property
    def document(self) -> Document:
        return Document(self.tokens, self.rows)

    def steps_left(self) -> Tensor:
        return torch.arange(self.rows, 0, -1, device=self.device)


@dataclass(frozen=True)
class Case:
    inputs: Sequence[Tensor]
    """Those that get a gradient; none = the case has no backward."""
    run: Callable[[OpSet], list[Tensor]]
    moved: float
    """Bytes, forward and backward."""
    flops: float


def rms_norm(s: Sizes) -> Case:
    x, w = s.random(s.rows, s.shape.hidden_size), s.random(s.shape.hidden_size)
    return Case([x, w], lambda ops: [ops.rms_norm(x, w, EPS)], 5 * _bytes(x), 0)


def add_rms_norm(s: Sizes) -> Case:
    x, residual = (s.random(s.rows, s.shape.hidden_size) for _ in range(2))
    w = s.random(s.shape.hidden_size)
    run = lambda ops: list(ops.add_rms_norm(x, residual, w, EPS))  # noqa: E731
    return Case([x, residual, w], run, 8 * _bytes(x), 0)


def norm_pair(s: Sizes) -> Case:
    a, b = (s.random(s.rows, s.shape.hidden_size) for _ in range(2))
    weights = [s.random(s.shape.hidden_size) for _ in range(2)]
    return Case([a, b, *weights], lambda ops: [ops.norm_pair(a, b, *weights, EPS)], 10 * _bytes(a), 0)


def rope(s: Sizes) -> Case:
    x = s.random(s.rows, s.shape.num_attention_heads, s.shape.head_dim)
    cos, sin = (s.random(s.rows, s.shape.head_dim // 2).detach().repeat(1, 2) for _ in range(2))
    return Case([x], lambda ops: [ops.rope(x, cos, sin)], 4 * _bytes(x), 0)


def swiglu(s: Sizes) -> Case:
    gate, up = (s.random(s.rows, s.shape.intermediate_size) for _ in range(2))
    return Case([gate, up], lambda ops: [ops.swiglu(gate, up)], 8 * _bytes(gate), 0)


def unroll_attention(s: Sizes) -> Case:
    """All steps; a causal block over the first keys costs half of rows x tokens."""
    h = s.shape
    layout = s.layout()
    q = s.random(s.rows, h.num_attention_heads, h.head_dim)
    k0, v0 = (s.random(s.tokens, h.num_key_value_heads, h.head_dim) for _ in range(2))
    chain = [
        (s.random(s.rows, h.num_key_value_heads, h.head_dim), s.random(s.rows, h.num_key_value_heads, h.head_dim))
        for _ in range(s.steps - 1)
    ]

    def run(ops: OpSet) -> list[Tensor]:
        return [ops.unroll_attention(q, k0, v0, chain[:step], layout) for step in range(s.steps)]

    flops = s.steps * attention_flops(h, s.document)
    moved = s.steps * (6 * _bytes(q) + 6 * _bytes(k0))
    return Case([q, k0, v0, *(t for pair in chain for t in pair)], run, moved, flops)


def teacher(s: Sizes) -> Case:
    """Log-sum-exp and argmax over the whole vocabulary, logits of the draft vocabulary."""
    h = s.shape
    hidden = s.random(s.rows, h.target_hidden_size).detach()
    weight = s.random(h.vocab_size, h.target_hidden_size, scale=0.02).detach()

    def run(ops: OpSet) -> list[Tensor]:
        drafted = ops.draft_teacher(hidden, weight[: h.draft_vocab_size])
        return [ops.best(hidden, weight).lse, drafted.logits, drafted.best.lse]

    return Case([], run, _bytes(weight), teacher_flops(h, s.rows))


def distill_loss(s: Sizes) -> Case:
    """One step, its teacher given."""
    h = s.shape
    hidden, weight = s.random(s.rows, h.hidden_size), s.random(h.draft_vocab_size, h.hidden_size, scale=0.02)
    logits = s.random(s.rows, h.draft_vocab_size, scale=2.0).detach()
    lse, label = logits.float().logsumexp(-1), logits.argmax(-1)
    row_weight = torch.full((1, s.rows), 1 / s.rows, device=s.device)
    left = s.steps_left()

    def run(ops: OpSet) -> list[Tensor]:
        return [ops.distill_loss([hidden], weight, logits, lse, label, row_weight, left, Objective()).total]

    return Case([hidden, weight], run, 3 * _bytes(logits), 3 * 2.0 * s.rows * weight.numel())


def matmuls(s: Sizes) -> Case:
    """The three products of distill_loss alone: what no kernel can save."""
    h = s.shape
    hidden, weight = s.random(s.rows, h.hidden_size), s.random(h.draft_vocab_size, h.hidden_size, scale=0.02)
    return Case([hidden, weight], lambda _: [hidden @ weight.t()], 0, 3 * 2.0 * s.rows * weight.numel())


def step(s: Sizes) -> Case:
    """The whole training step without target and optimiser: head, teacher, loss and metrics of all steps, backward."""
    h = s.shape
    with torch.device(s.device):
        head = Head(h)
        head.embed = torch.randn(h.vocab_size, h.hidden_size, dtype=s.dtype)
        head.t2d[: h.draft_vocab_size] = True
        lm_head = torch.randn(h.vocab_size, h.target_hidden_size, dtype=s.dtype) * 0.02
        batch = Batch(
            input_ids=torch.randint(0, h.vocab_size, (s.tokens,)),
            position=torch.arange(s.tokens),
            aux=torch.randn(s.tokens, h.num_aux * h.target_hidden_size, dtype=s.dtype),
            layout=s.layout(),
            steps_left=s.steps_left(),
            teacher_hidden=torch.randn(s.rows, h.target_hidden_size, dtype=s.dtype),
            teacher_lse=torch.zeros(s.rows),
            teacher_top=torch.randint(0, h.draft_vocab_size, (s.rows,)),
        )
    module = HeadModule(head, lm_head, Loss(unroll_steps=s.steps), Optim(), 1).to(s.device, s.dtype)
    inputs = [p for p in module.head.parameters() if p.requires_grad]

    def run(ops: OpSet) -> list[Tensor]:
        module.head.ops = ops
        ops.best(batch.teacher_hidden, lm_head)  # the feed's part of the teacher
        return [module.forward_steps(batch)[0]]

    return Case(inputs, run, 0, step_flops(h, s.steps, [s.document]))


CASES: dict[str, Callable[[Sizes], Case]] = {
    f.__name__: f
    for f in (
        *(rms_norm, add_rms_norm, norm_pair, rope, swiglu, unroll_attention, teacher, distill_loss, matmuls, step),
    )
}


def _bytes(t: Tensor) -> int:
    return t.numel() * t.element_size()
