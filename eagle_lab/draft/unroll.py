"""The training-time test: T draft steps over every supervised position at once, with the true tokens forced.

Alignment (eagle3, SafeAILab/EAGLE cnets.py): row t at step i takes the embedding of x[t+1+i] and the hidden state of
its own chain (the aux states of x[t] at step 0), sits at rotary position t + i, and predicts x[t+2+i]; its teacher is
the target's distribution after x[t+1+i].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eagle_lab.draft.head import Head
from eagle_lab.ops.unroll_attention.layout import Layout, sent


@dataclass(frozen=True)
class Batch:
    """Packed documents. Row r of N belongs to position t; its teacher at step 0 is the target after x[t+1].

    input_ids [T]; position [T] in the document; aux [T, A*H]; layout: documents and rows.
    Rows of one document are consecutive, so step i's teacher of row r is row r + i.
    steps_left [N]: number of unroll steps that still have a teacher in the same document (at least 1).
    teacher_hidden [N, H]: the target's last hidden state after x[t+1] (input of its lm_head).
    teacher_lse, teacher_top [N]: log-sum-exp (fp32) and argmax of its logits there, over the target vocabulary.
    whole [steps]: rows that this process trains at each unroll step in the whole optimiser step, where this batch is
    a part of it; None: the batch is all of it.
    """

    input_ids: Tensor
    position: Tensor
    aux: Tensor
    layout: Layout
    steps_left: Tensor
    teacher_hidden: Tensor
    teacher_lse: Tensor
    teacher_top: Tensor
    whole: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        moved = {k: sent(v, device) for k, v in self.__dict__.items() if isinstance(v, Tensor)}
        return replace(self, **moved, layout=self.layout.to(device))

    def step_masks(self, steps: int) -> tuple[Tensor, Tensor]:
        """step_rows of all steps: (valid, teacher row), each [steps, N]."""
        valid, at = zip(*map(self.step_rows, range(steps)), strict=True)
        return torch.stack(valid), torch.stack(at)

    def step_rows(self, step: int) -> tuple[Tensor, Tensor]:
        """(valid [N] bool, teacher row [N]) at this step; invalid rows point at themselves."""
        valid = self.steps_left > step
        at = torch.arange(valid.numel(), device=valid.device)
        return valid, torch.where(valid, at + step, at)


def one_document(input_ids: Tensor, aux: Tensor) -> Batch:
    """A single document, input_ids [S] and aux [S, A*H], with a row at every position but the last and no teacher."""
    size = input_ids.numel()
    at = torch.arange(size - 1)
    return Batch(
        input_ids=input_ids,
        position=torch.arange(size),
        aux=aux,
        layout=Layout(doc_start=torch.tensor([0, size]), row_doc=torch.zeros_like(at), row_pos=at),
        steps_left=torch.ones_like(at),
        teacher_hidden=torch.empty(size - 1, 0),
        teacher_lse=torch.zeros(size - 1),
        teacher_top=torch.zeros_like(at),
    )


def unroll(head: Head, batch: Batch, steps: int) -> Iterator[Tensor]:
    """Yields, for each step, the normed hidden state [N, H] that lm_head reads."""
    hidden_TH = head.first_hidden(batch.aux)
    last = batch.layout.doc_start[1:] - 1
    tokens = torch.arange(batch.input_ids.numel(), device=last.device)
    # a document's last position has no next token; its key is never attended
    following = torch.minimum(tokens + 1, last[torch.bucketize(tokens, last)])
    x_T2H = head.layer_input(batch.input_ids[following], hidden_TH)
    by = head.products()
    first = head.keys_values(by, x_T2H, batch.position)
    rows, end = batch.layout.row_token, last[batch.layout.row_doc]
    hidden, x = hidden_TH[rows], x_T2H[rows]
    chain: list[tuple[Tensor, Tensor]] = []
    for step in range(steps):
        positions = batch.position[rows] + step
        if step:
            x = head.layer_input(batch.input_ids[torch.minimum(rows + 1 + step, end)], hidden)
            chain.append(head.keys_values(by, x, positions))
        hidden = head.layer_output(by, x, hidden, positions, first, chain, batch.layout)
        normed = head.rms(hidden, head.norm)
        yield normed
        if head.shape.norm_output:
            hidden = normed


@torch.no_grad()
def hits(head: Head, batch: Batch, steps: int) -> Tensor:
    """[N, steps] bool: the head's proposal at this row and step is the target's argmax (False where there is none)."""
    found = []
    for step, hidden in enumerate(unroll(head, batch, steps)):
        valid, at = batch.step_rows(step)
        proposed = head.target_ids(head.lm_head(hidden).argmax(-1))
        found.append(valid & (proposed == batch.teacher_top[at]))
    return torch.stack(found, -1)
