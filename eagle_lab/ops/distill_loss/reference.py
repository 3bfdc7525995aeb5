"""lm_head, soft cross-entropy against the teacher, argmax and acceptance of one unroll step.

Per row with weight w and teacher p over the draft vocabulary (renormalised on it, temperature 1, detached):
    loss = -w * sum_v p_v log q_v,   q = softmax(hidden @ weight.T)
    d loss / d logits = w * (q - p)
The teacher's entropy is not subtracted: the floor is not zero. Source: EAGLE-3, SafeAILab/EAGLE cnets.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Distilled(NamedTuple):
    loss: Tensor
    """Scalar, sum over rows of w * cross-entropy (nats)."""
    argmax: Tensor
    """[N] draft-vocab id that the head proposes."""
    acceptance: Tensor
    """[N] sum_v min(p_v, q_v): acceptance probability under sampling, detached."""


def distill_loss(hidden: Tensor, weight: Tensor, teacher: Tensor, row_weight: Tensor) -> Distilled:
    """hidden [N, H] (after the final norm), weight [Vd, H], teacher p [N, Vd] fp32, row_weight [N]."""
    logits = (hidden @ weight.t()).float()
    log_q = logits.log_softmax(-1)
    loss = -(row_weight * (teacher * log_q).sum(-1)).sum()
    with torch.no_grad():
        acceptance = torch.minimum(teacher, log_q.exp()).sum(-1)
    return Distilled(loss, logits.argmax(-1), acceptance)
