"""Every op has a kernel, and the path that runs is told."""

from __future__ import annotations

import torch

from eagle_lab.ops.dispatch import op_set


def test_the_path_that_runs_is_told():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for impl, device, last in (
        ("reference", gpu, "reference"),
        ("auto", cpu, "reference"),
        ("auto", gpu, "function"),
        ("triton", cpu, "function"),
    ):
        paths = op_set(impl, device).paths()
        assert len(paths) == 10
        assert {path.rpartition(".")[2] for path in paths.values()} == {last}
        assert all(path.startswith("eagle_lab.ops.") for path in paths.values())
