from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.doctor.heads import Made
from tests.known_acceptance import known_pair


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A head with random weights, so that no tensor of it is special."""
    target, head = known_pair(tmp_path_factory.mktemp("doctor"))
    tensors = load_file(head / "model.safetensors")
    g = torch.Generator().manual_seed(0)
    for name, t in tensors.items():
        if t.is_floating_point() and t.ndim > 1:
            tensors[name] = torch.randn(t.shape, generator=g)
    save_file(tensors, head / "model.safetensors")
    return target, head
