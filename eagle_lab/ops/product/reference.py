"""A weight that every unroll step multiplies by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import linear

Product = Callable[..., Tensor]
"""product(x [N, in]) -> [N, out]; product(x, again, *sources) may forget x: in the backward it is again(*sources)."""


def product(weight: Tensor) -> Product:
    """weight [out, in], for one forward pass of any number of steps."""

    def times(x: Tensor, *_: Any) -> Tensor:
        return linear(x, weight)

    return times
