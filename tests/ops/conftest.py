"""Where a GPU is, everything here runs on it, compiled; elsewhere on the CPU, in triton's interpreter.

Fresh memory is NaN or nonsense, so that an op which leaves a place unwritten is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

NONSENSE = -7_777_777


def poisoned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def wrapped(*args: Any, **kwargs: Any) -> torch.Tensor:
        fresh = make(*args, **kwargs)
        return fresh.fill_(float("nan") if fresh.is_floating_point() else NONSENSE)

    return wrapped


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    yield
    torch.set_default_device(None)


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty))


@pytest.fixture
def random() -> Callable[..., torch.Tensor]:
    """random(*shape, dtype=...): normal numbers that want a gradient."""

    def make(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape) * scale).to(dtype).requires_grad_()

    return make
