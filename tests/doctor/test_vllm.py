"""Every fault of vLLM's corpus is named first for vLLM and none for SGLang; vLLM's good heads, odd ones, the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle_lab.cli.doctor import _served, stop_at_failures
from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Engine
from eagle_lab.doctor import vllm
from eagle_lab.doctor.finding import Level
from eagle_lab.doctor.registry import CHECKS, FILES, SERVED, diagnosis, examine
from tests.doctor.corpus import changed
from tests.doctor.corpus_vllm import TAKEN, VLLM_FAULTS, VllmFault, speculators
from tests.doctor.heads import Made, subject, targets_embedding
from tests.doctor.test_registry import ODD


def failing(good: Made, head: Path, engine: Engine) -> list[str]:
    return [v.check for v in diagnosis(examine(subject(good, head, engine)))]


@pytest.mark.parametrize("fault", VLLM_FAULTS, ids=lambda f: f.name)
def test_a_fault_is_named_first(good: Made, tmp_path: Path, fault: VllmFault) -> None:
    head = changed(good[1], tmp_path, fault.plant)
    export = json.loads((head / "export.json").read_text())
    (head / "export.json").write_text(json.dumps(export | fault.export))
    found = diagnosis(examine(subject(good, head, Engine.vllm)))
    assert [v.check for v in found][:1] == [fault.check], found
    follows = next(check.LEADS_TO for check in CHECKS if fault.check == check.NAME)
    assert {v.check for v in found[1:]} <= set(follows), found
    assert found[0].finding.fix
    if fault.sglang:
        assert failing(good, head, Engine.sglang) == []


def test_ours_is_a_good_head_in_both_layouts(good: Made, tmp_path: Path) -> None:
    assert failing(good, good[1], Engine.vllm) == []
    assert failing(good, changed(good[1], tmp_path, speculators), Engine.vllm) == []


@pytest.mark.parametrize("check", TAKEN)
def test_what_vllm_takes_and_sglang_does_not(good: Made, tmp_path: Path, check: str) -> None:
    head = changed(good[1], tmp_path, TAKEN[check])
    (head / "export.json").unlink()
    assert failing(good, head, Engine.sglang)[:1] == [check]
    assert failing(good, head, Engine.vllm) == []


def test_a_trained_embedding_is_served_by_vllm(good: Made, tmp_path: Path) -> None:
    theirs = targets_embedding(good)
    own = theirs + 0.1 * theirs.std() * torch.randn(theirs.shape, generator=torch.Generator().manual_seed(0))
    head = changed(good[1], tmp_path, lambda c, t: t.update({"embed_tokens.weight": own}))
    assert failing(good, head, Engine.sglang) == ["embedding"]
    assert failing(good, head, Engine.vllm) == []


def test_two_conventions_in_one_config_json(good: Made, tmp_path: Path) -> None:
    """Outputs' ids for SGLang within eagle_config, inputs' ids for vLLM beside it: both engines capture the same."""

    def plant(c: dict[str, Any], t: dict[str, torch.Tensor]) -> None:
        c["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [0, 2, 5]
        c["eagle_aux_hidden_state_layer_ids"] = [1, 3, 6]

    head = changed(good[1], tmp_path, plant)
    export = json.loads((head / "export.json").read_text())
    (head / "export.json").write_text(json.dumps({**export, "aux_layers": [1, 3, 6]}))
    assert failing(good, head, Engine.sglang) == failing(good, head, Engine.vllm) == []


def test_no_server_is_started_for_vllm(good: Made) -> None:
    given = subject(good, good[1], Engine.vllm)
    served = _served(given.config, given, Path(), None)
    verdicts = examine(served, SERVED)
    assert {v.level for v in verdicts} == {Level.skipped}
    assert {v.finding.found for v in verdicts} == {"a vLLM server is not started here"}


@pytest.mark.parametrize("field", [*ODD, "speculators_config", "transformer_layer_config", vllm.OUTER_IDS])
@pytest.mark.parametrize("value", [7, "text", [[]], {"a": 1}])
def test_any_value_in_config_json_gives_a_verdict(good: Made, tmp_path: Path, field: str, value: Any) -> None:
    def plant(c: dict[str, Any], t: dict[str, torch.Tensor]) -> None:
        speculators(c, t)
        (c if field in c else c["transformer_layer_config"])[field] = value

    assert len(examine(subject(good, changed(good[1], tmp_path, plant), Engine.vllm), FILES)) == len(FILES)


def test_before_a_measurement_sglang_is_asked(good: Made, tmp_path: Path) -> None:
    """It is what serves the points, whatever doctor.engine says."""
    head = changed(good[1], tmp_path, TAKEN["norms"])
    (head / "export.json").unlink()
    with pytest.raises(LabError, match="norms: norm_before_residual=true"):
        stop_at_failures(subject(good, head, Engine.vllm).config, good[0], head, None)
