"""Which loss a row pays, with its gradient. One place for the reference and the kernel.

With teacher p over the draft vocabulary (sum of p = mass <= 1), student q = softmax(z), acceptance a = sum min(p, q)
and b = the part of q that lies below p:

    soft_ce    -sum p log q                     dz = mass q - p        (EAGLE-3, arXiv 2503.01840)
    kl         sum p log(p / q)                 dz = mass q - p
    lk_alpha   -log a                           dz = (b q - q [q < p]) / a
    lk_lambda  w kl + (1 - w)(1 - a)            dz = w (mass q - p) + (1 - w)(b q - q [q < p])
    hard       -log q[label]                    dz = q - 1[label]
    where w = kl_scale exp(-kl_decay a), not differentiated   (LK losses: SpecForge, specforge/core/lk_loss.py)

All are of the form dz = A q - B p + C q [q < p] - D 1[label].
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("soft_ce", "kl", "lk_alpha", "lk_lambda", "hard")
LEAST_ACCEPTANCE = 1e-30
"""Under it -log a and its gradient stay finite: a student whose overlap has underflowed learns nothing."""


@dataclass(frozen=True)
class Objective:
    kind: str = "soft_ce"
    kl_scale: float = 1.0
    kl_decay: float = 3.0

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind
