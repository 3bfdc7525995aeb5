"""lm_head, loss against the teacher, argmax and acceptance of every unroll step, written out.

Row r at step i reads teacher row r + i; it counts while steps_left[r] > i. The total is
sum_i sum_r row_weight[i, r] * loss(row r at step i), with `losses.Objective` for the loss of a row.
The teacher's entropy is not subtracted from soft_ce: its floor is not zero.
Source: EAGLE-3, SafeAILab/EAGLE cnets.py; specforge/core/loss.py, core/lk_loss.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from eagle_lab.ops.distill_loss.losses import LEAST_ACCEPTANCE, Objective


class Distilled(NamedTuple):
    total: Tensor
    """Scalar: the weighted sum over all steps and rows (nats)."""
    loss: Tensor
    """[steps, N] fp32 of each row, unweighted, detached; 0 where there is no teacher."""
    argmax: Tensor
    """[steps, N] draft-vocab id that the head proposes; 0 where there is no teacher."""
    acceptance: Tensor
    """[steps, N] fp32 sum_v min(p_v, q_v): acceptance probability under sampling, detached."""


def distill_loss(
    hiddens: Sequence[Tensor],
    weight: Tensor,
    teacher_logits: Tensor,
    teacher_lse: Tensor,
    label: Tensor,
    row_weight: Tensor,
    steps_left: Tensor,
    objective: Objective,
) -> Distilled:
    """hiddens: per step [N, H] (after the final norm); weight [Vd, H]; teacher_logits [N, Vd], teacher_lse [N] fp32.

    p = exp(teacher_logits - teacher_lse): over the draft vocabulary's log-sum-exp it is renormalised there, over the
    full vocabulary's the mass outside is charged. label [N]: the teacher's best draft id. row_weight [steps, N] fp32.
    """
    at = torch.arange(len(steps_left), device=steps_left.device)
    losses, proposals, accepted = [], [], []
    for step, hidden in enumerate(hiddens):
        valid = steps_left > step
        row = torch.where(valid, at + step, at)
        log_q = (hidden @ weight.to(hidden.dtype).t()).float().log_softmax(-1)
        log_p = teacher_logits[row].float() - teacher_lse[row, None]
        overlap = torch.minimum(log_p.exp(), log_q.exp()).sum(-1)
        losses.append(torch.where(valid, _row_loss(objective, log_p, log_q, overlap, label[row]), 0.0))
        proposals.append(torch.where(valid, log_q.argmax(-1), 0))
        accepted.append(torch.where(valid, overlap, 0.0).detach())
    loss = torch.stack(losses)
    total = (row_weight * loss).sum()
    return Distilled(total, loss.detach(), torch.stack(proposals), torch.stack(accepted))


def _row_loss(objective: Objective, log_p: Tensor, log_q: Tensor, overlap: Tensor, label: Tensor) -> Tensor:
    if objective.kind == "hard":
        return -log_q.gather(-1, label[:, None])[:, 0]
    if objective.kind == "lk_alpha":
        return -overlap.clamp(min=LEAST_ACCEPTANCE).log()
    p = log_p.exp()
    cross = -(p * log_q).sum(-1)
    if objective.kind == "soft_ce":
        return cross
    kl = cross - torch.special.entr(p).sum(-1)
    if objective.kind == "kl":
        return kl
    w = objective.kl_scale * torch.exp(-objective.kl_decay * overlap.detach())
    return w * kl + (1 - w) * (1 - overlap)
