"""Every fault of the corpus is named first, and brings only what follows from it; good heads by any trainer pass."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config
from eagle_lab.config.stage import stage
from eagle_lab.doctor.finding import Level
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.doctor.registry import CHECKS, diagnosis, examine
from eagle_lab.doctor.subject import Subject
from tests.doctor.corpus import FAULTS, Fault, add, changed, put, say
from tests.doctor.heads import Made, subject


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_is_named_first(good: Made, tmp_path: Path, fault: Fault) -> None:
    found = diagnosis(examine(subject(good, changed(good[1], tmp_path, fault.plant))))
    assert [v.check for v in found][:1] == [fault.check], found
    follows = next(check.LEADS_TO for check in CHECKS if fault.check == check.NAME)
    assert {v.check for v in found[1:]} <= set(follows), found
    assert found[0].finding.fix or "Supported" in found[0].finding.found or found[0].finding.found


def test_a_good_head_has_no_fault(good: Made) -> None:
    verdicts = examine(subject(good, good[1]))
    assert diagnosis(verdicts) == []
    assert {v.level for v in verdicts} <= {Level.ok, Level.warn, Level.skipped}


def test_one_value_that_is_none_is_found_wherever_it_is(good: Made, tmp_path: Path) -> None:
    def plant(c: dict[str, Any], t: dict[str, torch.Tensor]) -> None:
        rows = len(t["lm_head.weight"])
        assert rows > 400, "more than would be sampled"
        t["lm_head.weight"][rows // 3, 1] = float("nan")

    found = diagnosis(examine(subject(good, changed(good[1], tmp_path, plant))))
    assert [(v.check, v.finding.found) for v in found[:1]] == [("values", "NaN or Inf in lm_head.weight")]


def test_a_head_as_pytorch_saves_it(good: Made, tmp_path: Path) -> None:
    head = shutil.copytree(good[1], tmp_path / "head")
    torch.save(load_file(head / "model.safetensors"), head / "pytorch_model.bin")
    (head / "model.safetensors").unlink()
    assert diagnosis(examine(subject(good, head))) == []


@pytest.mark.parametrize(("name", "judged"), [("model.safetensors", True), ("config.json", False)])
def test_a_torn_file_is_one_failure(good: Made, tmp_path: Path, name: str, judged: bool) -> None:
    head = shutil.copytree(good[1], tmp_path / "head")
    (head / name).write_bytes((head / name).read_bytes()[:-100])
    verdicts = {v.check: v for v in examine(subject(good, head))}
    assert [v.check for v in diagnosis(verdicts.values())] == ["files"]
    assert name in verdicts["files"].finding.found
    assert verdicts["tensors"].finding.found == "not all of its files can be read: see files"
    assert (verdicts["positions"].level is Level.ok) is judged, "what needs config.json alone is judged"


def test_an_edited_config_does_not_hide_what_is_wrong_in_it(good: Made, tmp_path: Path) -> None:
    with stage(tmp_path, "export", "sglang", {}) as work:
        shutil.copytree(good[1], work.path, dirs_exist_ok=True)
        work.finish({})
    assert diagnosis(examine(subject(good, work.path))) == []
    config = json.loads((work.path / "config.json").read_text())
    (work.path / "config.json").write_text(json.dumps(config | {"rope_parameters": None, "rope_theta": 5e5}))
    verdicts = examine(subject(good, work.path))
    assert [v.check for v in diagnosis(verdicts)] == ["rope"]
    files = verdicts[0].finding
    assert (files.level, files.found[:12]) == (Level.warn, "config.json:")
    assert files.fix.endswith(f"remove {work.path}/manifest.json.")
    (work.path / "model.safetensors").unlink()
    shutil.copy(good[0].path / "model.safetensors", work.path)
    found = diagnosis(examine(subject(good, work.path)))[0]
    assert (found.check, found.finding.found[:18]) == ("files", "model.safetensors:")


def test_the_target_given_as_a_head_is_one_failure(good: Made) -> None:
    verdicts = examine(subject(good, good[0].path))
    (found,) = diagnosis(verdicts)
    assert (found.check, found.finding.found) == ("architecture", "the target itself, LlamaForCausalLM")
    assert {v.level for v in verdicts} == {Level.ok, Level.fail, Level.skipped}


def turned(name: str) -> Any:
    return put(name, lambda t: t.T)


@pytest.mark.parametrize(
    ("plant", "check", "fix"),
    [
        (turned("fc.weight"), "aux width", "transpose it"),
        (turned("midlayer.self_attn.q_proj.weight"), "shapes", "transpose it"),
        (say(hidden_size=0), "made for this target", "correct config.json"),
        (say(num_attention_heads="4"), "shapes", "as the tensors have them"),
        (add("midlayer.self_attn.q_proj.bias", 64), "biases", "vLLM reads them"),
        (say(attention_bias=True), "biases", "say attention_bias=false"),
        (put("t2d", lambda t: t.roll(1)), "vocabulary map", "engines go by d2t"),
        (say(hidden_size=None), "made for this target", "correct config.json"),
        (say(dtype="fp32"), "dtype", "the one that the weights have"),
        (say(quantization_config={"quant_method": "fp8"}), "dtype", "take it out"),
        (say(architectures="LlamaForCausalLMEagle3"), "architecture", "correct config.json"),
        (say(rope_theta="10000.0"), "rope", "without quotes"),
        (say(rms_norm_eps="small"), "norms", "the one that training used"),
        (say(rms_norm_eps=1e-3), "norms", "unless the head was trained otherwise"),
    ],
)
def test_a_fix_that_mends_it(good: Made, tmp_path: Path, plant: Any, check: str, fix: str) -> None:
    found = diagnosis(examine(subject(good, changed(good[1], tmp_path, plant))))[0]
    assert (found.check, fix in found.finding.fix) == (check, True), found


ODD: dict[str, Any] = {
    "hidden_size": "64",
    "vocab_size": None,
    "num_attention_heads": 0,
    "max_position_embeddings": "many",
    "rope_parameters": "default",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": ["1", "3"]},
    "draft_vocab_size": {},
    "num_hidden_layers": "1",
    "architectures": 7,
}


@pytest.mark.parametrize("field", ODD)
def test_any_value_in_config_json_gives_a_verdict(good: Made, tmp_path: Path, field: str) -> None:
    verdicts = examine(subject(good, changed(good[1], tmp_path, lambda c, t: c.update({field: ODD[field]}))))
    assert len(verdicts) == len(CHECKS)
    assert diagnosis(verdicts)


@pytest.mark.parametrize("name", ["d2t", "t2d", "fc.weight", "lm_head.weight", "norm.weight"])
@pytest.mark.parametrize("size", [(), (0,), (2, 2)])
def test_a_tensor_of_any_shape_gives_a_verdict(good: Made, tmp_path: Path, name: str, size: tuple[int, ...]) -> None:
    def plant(c: dict[str, Any], t: dict[str, torch.Tensor]) -> None:
        t[name] = torch.zeros(size, dtype=t[name].dtype)

    assert len(examine(subject(good, changed(good[1], tmp_path, plant)))) == len(CHECKS)


def test_a_map_in_any_order_serves(good: Made, tmp_path: Path) -> None:
    """ModelOpt's is by frequency."""

    def plant(c: dict[str, Any], t: dict[str, torch.Tensor]) -> None:
        ids = t["d2t"] + torch.arange(len(t["d2t"]))
        t["d2t"] = ids.flip(0) - torch.arange(len(ids))

    assert diagnosis(examine(subject(good, changed(good[1], tmp_path, plant)))) == []


def test_another_trainer_s_rope_is_a_warning(good: Made, tmp_path: Path) -> None:
    head = changed(good[1], tmp_path, lambda c, t: c.update(rope_parameters=None, rope_theta=1e6))
    (head / "export.json").unlink()
    verdicts = examine(subject(good, head))
    assert diagnosis(verdicts) == []
    assert next(v for v in verdicts if v.check == "rope").level is Level.warn


def test_an_mla_head_is_not_judged_as_a_llama(good: Made, tmp_path: Path) -> None:
    def plant(c: dict[str, Any], t: dict[str, torch.Tensor]) -> None:
        c["architectures"] = ["Eagle3DeepseekV2ForCausalLM"]
        t["midlayer.self_attn.q_a_proj.weight"] = t.pop("midlayer.self_attn.q_proj.weight")

    assert diagnosis(examine(subject(good, changed(good[1], tmp_path, plant)))) == []


def test_what_is_not_given_is_skipped() -> None:
    verdicts = examine(Subject(Config(name="test")))
    assert {v.level for v in verdicts} == {Level.skipped}
    assert [v.check for v in verdicts] == [c.NAME for c in CHECKS]


def test_every_check_says_what_it_catches() -> None:
    names = [c.NAME for c in CHECKS]
    assert len(set(names)) == len(names)
    for check in CHECKS:
        assert check.CATCHES.endswith(".")
        assert check.REPORTS
        assert set(check.LEADS_TO) <= set(names)
        assert set(check.NEEDS) <= {"head", "target", "dataset", "served"}


def test_only_headers_and_slices_are_read(good: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the large matrices no more than three slices of 64 rows."""
    read: list[int] = []
    real = HeadDirectory.rows

    def rows(self: HeadDirectory, name: str, at: slice) -> torch.Tensor:
        part = real(self, name, at)
        read.append(len(part))
        return part

    monkeypatch.setattr(HeadDirectory, "rows", rows)
    monkeypatch.setattr("eagle_lab.doctor.checks.values.WHOLE", 0)  # as if they were large
    examine(subject(good, good[1]))
    assert max(read) <= 512  # d2t, t2d and this small head's own sizes


def test_an_unknown_name_is_refused() -> None:
    from eagle_lab.cli.doctor import failing
    from eagle_lab.config.schema_serving import Doctor

    with pytest.raises(LabError, match="no check is called nosuch"):
        failing(Config(name="test", doctor=Doctor(ignore=["nosuch"])), [])


def test_the_page_is_that_of_the_checks() -> None:
    from tests.doctor_page import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.doctor_page`"
