"""Heads as other trainers write them have no failure for the engines that they are written for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Level
from eagle_lab.doctor.registry import diagnosis, examine
from tests.doctor.corpus import changed
from tests.doctor.heads import Made, subject, targets_embedding
from tests.doctor.layouts import LAYOUTS, Layout


def written(good: Made, into: Path, layout: Layout) -> Path:
    def plant(c: dict[str, Any], t: dict[str, torch.Tensor]) -> None:
        layout.write(c, t)
        if layout.embedding:
            t["embed_tokens.weight"] = targets_embedding(good)

    head = changed(good[1], into, plant)
    (head / "export.json").unlink()
    if layout.pickled:
        torch.save(load_file(head / "model.safetensors"), head / "pytorch_model.bin")
        (head / "model.safetensors").unlink()
    return head


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda x: x.name)
def test_a_foreign_layout_has_no_failure(good: Made, tmp_path: Path, layout: Layout) -> None:
    head = written(good, tmp_path, layout)
    for engine in Engine:
        verdicts = examine(subject(good, head, engine))
        if engine in layout.engines:
            assert diagnosis(verdicts) == [], engine
            assert {v.level for v in verdicts} <= {Level.ok, Level.warn, Level.skipped}
        else:
            assert diagnosis(verdicts)[0].check in ("architecture", "tensors"), engine


def test_there_are_foreign_layouts_for_each_engine() -> None:
    assert len(LAYOUTS) == 8
    assert all(sum(engine in layout.engines for layout in LAYOUTS) >= 5 for engine in Engine)
