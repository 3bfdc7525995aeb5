"""Memory and time of a training, beside what was measured on an H200 (docs/results)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.gpus import gpu_named
from eagle_lab.config.schema import Config, Experts
from eagle_lab.draft.cost import Document, kept_bytes, state_bytes
from eagle_lab.draft.shape import head_shape
from eagle_lab.plan.training import GIB, Work, at_most, planned, target_size
from tests.plan.test_resolve import config_of

ROWS = [Document(2048, 2047)] * 32


def plan_of(config: Config, here: str | None = None, documents: list[Document] = ROWS) -> dict[str, str]:
    shape = head_shape(config.draft, config.target.facts.__dict__, 3)
    batch = config.trainer.batch_size
    steps = [list(range(i, i + batch)) for i in range(0, len(documents), batch)] * config.trainer.max_epochs
    tokens, rows = (sum(column) for column in zip(*documents, strict=True))
    return planned(config, config.target.facts, shape, Work(documents, tokens, rows, steps, None), here)


def test_a_target_s_size_follows_from_its_facts() -> None:
    size = target_size(config_of("target=llama31_8b").target.facts, Experts())
    assert size is not None
    assert size.weights == pytest.approx(2 * 8.03e9, rel=0.001)


def test_a_mixture_of_experts_is_counted_by_what_is_said_of_it() -> None:
    unsaid = config_of("target=kimi_k2", "target.experts.parameters=null")
    assert target_size(unsaid.target.facts, unsaid.target.experts) is None
    assert "does not follow from facts; target.experts says it" in plan_of(unsaid, "NVIDIA H200")["memory, hours"]
    kimi = ("target=kimi_k2", "trainer.batch_size=1", "plan.gpu=h200")
    # 1,026 G weights of a byte; a token passes 30.5 G of them
    alone, many = (
        plan_of(config_of(*kimi, "trainer.capture=online", *more))["GPU memory"]
        for more in ([], ["trainer.target_map=auto", "plan.gpus=16"])
    )
    assert "DOES NOT FIT: trainer.target_map=auto with more GPUs" in alone
    assert "target 955.9" in alone
    assert "DOES NOT FIT" not in many
    assert "target 59.7" in many
    stored = plan_of(config_of(*kimi, "trainer.capture=stored"))
    assert "with the target (955.9 GiB) on 8 x h200, one at work at a time" in stored["capturing them"]


def test_stored_states_need_no_target() -> None:
    stored = plan_of(config_of("target=llama31_8b", "trainer.capture=stored", "plan.gpu=h100"))
    online = plan_of(config_of("target=llama31_8b", "trainer.capture=online", "plan.gpu=h100"))
    assert "target 15.0" in online["GPU memory"]
    assert "target 1" not in stored["GPU memory"]
    # 3 aux states and the last one: 4 x 4096 x 2 bytes per token
    assert stored["target's states"].startswith("2.0 GiB on disk")


RESULTS = Path(__file__).resolve().parents[2] / "docs/results/h200.jsonl"
MEASURED = [row for row in map(json.loads, RESULTS.read_text().splitlines()) if row["what"] == "plan"]


@pytest.mark.parametrize("row", MEASURED, ids=lambda r: f"{r['target']} {r['capture']}")
def test_speed_and_memory_are_those_of_trainings_on_an_h200(row: dict[str, Any]) -> None:
    config = config_of(
        f"target={row['target']}",
        f"trainer.capture={row['capture']}",
        f"trainer.batch_size={row['batch_size']}",
        f"draft.vocab_size={row['draft_vocab']}",
        f"loss.unroll_steps={row['unroll_steps']}",
        "trainer.max_epochs=200",  # the first one's pass of the target is not in the measured steps
        "plan.gpu=h200",
    )
    found = plan_of(config)
    speed = float(found["hours"].split("(")[1].split()[0].replace(",", ""))
    assert speed == pytest.approx(row["measured_tokens_s"], rel=0.2)
    assert row["trial_tokens_s"] == pytest.approx(row["measured_tokens_s"], rel=0.2)
    if row["measured_gib"]:
        assert float(found["GPU memory"].split()[0]) == pytest.approx(row["measured_gib"], rel=0.2)


def test_what_does_not_fit_is_said() -> None:
    config = config_of("target=llama31_8b", "trainer.batch_size=32", "plan.gpu=rtx 4090")
    assert "DOES NOT FIT" in plan_of(config)["GPU memory"]


def test_without_a_gpu_nothing_is_made_up() -> None:
    assert "no GPU here" in plan_of(config_of("target=llama31_8b"))["memory, hours"]
    assert "Some Chip" in plan_of(config_of("target=llama31_8b"), "Some Chip")["memory, hours"]


def test_kept_states_save_the_later_epochs_the_target_s_pass() -> None:
    def hours(*more: str) -> float:
        said = plan_of(config_of("target=llama31_8b", "plan.gpu=l4", "trainer.max_epochs=3", *more))["hours"]
        return float(said.split()[1]) * (60 if said.split()[2] == "h" else 1)

    assert hours("trainer.capture=stored") < hours("trainer.capture=cached") < hours("trainer.capture=online")
    assert hours("trainer.devices=2") == pytest.approx(hours() / 2, rel=0.1)


def test_sources_say_how_many_rows_at_most(tmp_path: Path) -> None:
    config = config_of("data.max_length=100", "data.holdout=0.5")
    assert at_most(config) == [Document(100, 99)] * 1000
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"turns": ["a"]}\n\n{"turns": ["b"]}\n{"turns": ["c", "d"]}\n{"turns": ["e"]}\n')
    given = ("data=jsonl", "data.holdout=0")
    assert len(at_most(config_of(*given, f"data.sources=[{{path: {file}}}]"))) == 5, "a file's turns are counted"
    assert len(at_most(config_of(*given, f"data.sources=[{{path: {file}, count: 3}}]"))) == 4, "of 3 conversations"
    assert len(at_most(config_of(*given, "data.sources=[{url: https://a/b.jsonl}]"))) == 2000, "it is not here yet"
    file.write_text("{")
    with pytest.raises(LabError, match=r"prompts\.jsonl"):
        at_most(config_of(*given, f"data.sources=[{{path: {file}}}]"))


def test_kept_bytes_are_those_measured_on_an_h200() -> None:
    """Beyond what does not grow with the batch: rows of a SmolLM2 training; the whole step of a Llama-3.1-8B head."""
    smollm2 = config_of("target=smollm2_135m", "draft.vocab_size=16384")
    shape = head_shape(smollm2.draft, smollm2.target.facts.__dict__, 3)
    rows = [row for row in results("ops_h200.jsonl") if row["what"] == "training" and row["supervised"] == 1]
    large, small = (next(row for row in rows if row["batch"] == n) for n in (32, 16))
    tokens = 2048 * 16
    found = kept_bytes(shape, 7, 2 * tokens, 2 * tokens) - kept_bytes(shape, 7, tokens, tokens)
    found += state_bytes(shape, tokens, tokens)
    assert found / GIB == pytest.approx(large["peak_gib"] - small["peak_gib"], rel=0.1)

    llama = config_of("target=llama31_8b", "draft.vocab_size=32000")
    shape = head_shape(llama.draft, llama.target.facts.__dict__, 3)
    (step,) = (
        row
        for row in results("ops_h200.jsonl")
        if (row.get("op"), row.get("provider"), row["tokens"], row["supervised"]) == ("step", "eagle_lab", 4096, 1)
    )
    lm_head = 2 * 32000 * 4096  # its gradient, in bf16 there, is made in the forward pass
    assert kept_bytes(shape, 7, 4096, 4095) + lm_head == pytest.approx(step["peak_gib"] * GIB, rel=0.1)


def results(file: str) -> list[dict[str, Any]]:
    lines = (Path(__file__).resolve().parents[2] / "docs/results" / file).read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["NVIDIA L40", "NVIDIA RTX A4000", "NVIDIA GH200 480GB"])
def test_other_gpus_are_not_taken_for_known_ones(name: str) -> None:
    assert gpu_named(name) is None


@pytest.mark.parametrize(
    ("name", "known"),
    [("NVIDIA H100 80GB HBM3", 989), ("NVIDIA A100-SXM4-40GB", 312), ("NVIDIA L4", 121), ("NVIDIA H200", 989)],
)
def test_gpus_by_the_driver_s_name(name: str, known: float) -> None:
    gpu = gpu_named(name)
    assert gpu is not None
    assert gpu.tflop_s == known
