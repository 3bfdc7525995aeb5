"""What losses and metrics need of the target, from its last hidden states: where it would go, and its draft logits.

Source: specforge/core/compact_teacher.py computes the same from stored features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ROWS = 256
"""At a time, so that there never are [S, V] logits."""


class Best(NamedTuple):
    lse: Tensor
    """[N] fp32 log-sum-exp of the logits."""
    top: Tensor
    """[N] int64 argmax of the logits, the first of equals."""


class DraftTeacher(NamedTuple):
    logits: Tensor
    """[N, Vd] in hidden's dtype."""
    best: Best
    """Over the draft vocabulary: exp(logits - lse) sums to 1 there, top is a draft id."""


@torch.no_grad()
def best(hidden: Tensor, weight: Tensor) -> Best:
    """hidden [N, H] (input of lm_head), weight [V, H]; the logits themselves are not kept."""
    parts = []
    for part in hidden.split(ROWS):
        logits = (part @ weight.to(hidden.dtype).t()).float()
        parts.append((logits.logsumexp(-1), logits.argmax(-1)))
    return Best(*(torch.cat(column) for column in zip(*parts, strict=True)))


@torch.no_grad()
def draft_teacher(hidden: Tensor, rows: Tensor) -> DraftTeacher:
    """hidden [N, H], rows [Vd, H]: lm_head's rows of the draft vocabulary."""
    logits = hidden @ rows.to(hidden.dtype).t()
    wide = logits.float()
    return DraftTeacher(logits, Best(wide.logsumexp(-1), wide.argmax(-1)))
