"""Per-step accuracies over supervised rows, summed as counts so that batches of any size weigh by their rows."""

from __future__ import annotations

import torch
from torch import Tensor


class StepCounts:
    """Counts per unroll step.

    marginal accuracy i: proposals at step i equal to the target's argmax, whatever came before.
    cumulative accuracy i: equal at steps 0..i, among the rows that have a teacher at step i.
    proxy accept length = 1 + sum_i cumulative i (the bonus token included, as in serving).
    """

    def __init__(self, steps: int) -> None:
        self.rows = torch.zeros(steps, dtype=torch.float64)
        self.hits, self.all_hits = self.rows.clone(), self.rows.clone()
        self.acceptance, self.loss, self.trained = self.rows.clone(), self.rows.clone(), self.rows.clone()

    def add(self, valid: Tensor, hit: Tensor, acceptance: Tensor, loss: Tensor, trained: Tensor) -> None:
        """All [steps, N]: valid, hit, trained bool; acceptance; loss of each row (nats)."""
        parts = [valid, hit, hit.cumprod(0), acceptance * valid, loss * trained, trained]
        sums = torch.stack([p.sum(-1, dtype=torch.float64) for p in parts]).cpu()  # one transfer: each one waits
        for into, value in zip(self._all(), sums, strict=True):
            into += value

    def _all(self) -> list[Tensor]:
        return [self.rows, self.hits, self.all_hits, self.acceptance, self.loss, self.trained]

    def merge(self, other: StepCounts) -> None:
        for mine, theirs in zip(self._all(), other._all(), strict=True):
            mine += theirs

    def summary(self) -> dict[str, float]:
        rows = self.rows.clamp(min=1)
        out: dict[str, float] = {}
        for i in range(len(rows)):
            out[f"accuracy_{i}"] = float(self.hits[i] / rows[i])
            out[f"cumulative_{i}"] = float(self.all_hits[i] / rows[i])
            out[f"acceptance_{i}"] = float(self.acceptance[i] / rows[i])
            out[f"loss_{i}"] = float(self.loss[i] / self.trained[i].clamp(min=1))
        out["proxy_accept_length"] = 1.0 + float((self.all_hits / rows).sum())
        return out
