"""draft.init=head: the exported head must be whole, of these sizes and these aux layers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir

from eagle_lab.cli.stages import first_head, head_tensors
from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import conf_dir
from eagle_lab.export import sglang
from tests.draft.conftest import SHAPE, random_head
from tests.export.test_sglang import TARGET

LOCATED: Any = SimpleNamespace(name="small", num_hidden_layers=8, config=TARGET)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    sglang.write(
        tmp_path / "head", dict(random_head().state_dict()), SHAPE, [2, 4, 5], TARGET, {"aux_layers": [2, 4, 5]}
    )
    return tmp_path / "head"


def config_of(*overrides: str) -> Any:
    load.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return load.load(compose("train", ["target=tiny", "draft.vocab_size=64", *overrides]))


def test_init_and_directory_belong_together(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"draft\.init=head with draft\.init_head=None: .* belong together"):
        config_of("draft.init=head")
    with pytest.raises(LabError, match=r"draft\.init=target with draft\.init_head=/x: .* belong together"):
        config_of("draft.init_head=/x")
    with pytest.raises(LabError, match=rf"draft\.init_head={tmp_path}: no config\.json is in it"):
        config_of("draft.init=head", f"draft.init_head={tmp_path}")


def test_its_tensors_and_map_are_taken(exported: Path) -> None:
    config = config_of("draft.init=head", f"draft.init_head={exported}", "aux=explicit", "aux.layers=[2,4,5]")
    first = first_head(config, LOCATED)
    assert first is not None
    found = head_tensors(first)
    assert len(found["d2t"]) == 24  # whatever draft.vocab_size says
    assert all(torch.equal(found[n], t) for n, t in random_head().state_dict().items())
    assert first_head(config_of(), LOCATED) is None


def test_other_aux_layers_and_sizes_are_refused(exported: Path) -> None:
    given = ("draft.init=head", f"draft.init_head={exported}")
    with pytest.raises(LabError, match=r"it reads aux layers \[2, 4, 5\], this config \[2, 4, 6\]"):
        first_head(config_of(*given, "aux=explicit", "aux.layers=[2,4,6]"), LOCATED)
    with pytest.raises(LabError, match="its intermediate_size is 24, this config makes 48"):
        first_head(config_of(*given, "aux=explicit", "aux.layers=[2,4,5]", "draft.intermediate_size=48"), LOCATED)
