"""Per-step accuracies over supervised rows, summed as counts so that batches of any size weigh by their rows."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


class StepCounts:
    """Counts per unroll step.

    marginal accuracy i: proposals at step i equal to the target's argmax, whatever came before.
    cumulative accuracy i: equal at steps 0..i, among the rows that have a teacher at step i.
    proxy accept length = 1 + sum_i cumulative i (the bonus token included, as in serving).
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._added: Tensor | None = None
        """None: nothing yet. Zeros from the CPU would have to be copied beside what is added, which waits for a GPU."""

    @property
    def _sums(self) -> Tensor:
        """[6, steps]: rows, hits, all_hits, acceptance, loss, trained; on the device of what was added."""
        return torch.zeros(6, self.steps, dtype=torch.float64) if self._added is None else self._added

    @property
    def rows(self) -> Tensor:
        """[steps] rows that have a teacher."""
        return self._sums[0]

    @property
    def trained(self) -> Tensor:
        """[steps] rows that the loss was taken over."""
        return self._sums[-1]

    def add(self, valid: Tensor, hit: Tensor, acceptance: Tensor, loss: Tensor, trained: Tensor) -> None:
        """All [steps, N]: valid, hit, trained bool; acceptance; loss of each row (nats). Does not wait for a GPU."""
        parts = [valid, hit, hit.cumprod(0), acceptance * valid, loss * trained, trained]
        self._add(torch.stack([p.sum(-1, dtype=torch.float64) for p in parts]))

    def merge(self, other: StepCounts) -> None:
        self._add(other._sums)

    def _add(self, sums: Tensor) -> None:
        self._added = sums if self._added is None else self._added + sums

    def gathered(self) -> StepCounts:
        """With those of all processes, where there are several."""
        if dist.is_initialized():
            self._added = self._sums.clone()
            dist.all_reduce(self._added)
        return self

    def summary(self) -> dict[str, float]:
        rows, hits, all_hits, acceptance, loss, trained = self._sums.cpu()  # one transfer: each one waits
        rows, trained = rows.clamp(min=1), trained.clamp(min=1)
        out: dict[str, float] = {}
        for i in range(len(rows)):
            out[f"accuracy_{i}"] = float(hits[i] / rows[i])
            out[f"cumulative_{i}"] = float(all_hits[i] / rows[i])
            out[f"acceptance_{i}"] = float(acceptance[i] / rows[i])
            out[f"loss_{i}"] = float(loss[i] / trained[i])
        out["proxy_accept_length"] = 1.0 + float((all_hits / rows).sum())
        return out
