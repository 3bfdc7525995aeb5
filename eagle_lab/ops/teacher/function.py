"""The compact teacher with the Triton kernel: of the target's logits no more at once than one chunk."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from eagle_lab.ops.teacher.kernel import best_kernel
from eagle_lab.ops.teacher.reference import Best, DraftTeacher

CHUNK_BYTES = 140 << 20
"""Of logits: 572 rows of 128,256 in bf16."""
BLOCK = 8192


@torch.no_grad()
def best(hidden: Tensor, weight: Tensor) -> Best:
    """As the reference."""
    weight = weight.to(hidden.dtype)
    size = max(1, CHUNK_BYTES // (len(weight) * hidden.element_size()))
    parts = [_best(part @ weight.t()) for part in hidden.split(size)]
    return Best(*(torch.cat(column) for column in zip(*parts, strict=True)))


@torch.no_grad()
def draft_teacher(hidden: Tensor, rows: Tensor) -> DraftTeacher:
    """As the reference."""
    logits = hidden @ rows.to(hidden.dtype).t()
    return DraftTeacher(logits, _best(logits))


def _best(logits: Tensor) -> Best:
    rows, columns = logits.shape
    lse = torch.empty(rows, dtype=torch.float32, device=logits.device)
    top = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        block = min(BLOCK, triton.next_power_of_2(columns))
        best_kernel[rows,](logits, lse, top, columns, BLOCK=block, num_warps=8)
    return Best(lse, top)
