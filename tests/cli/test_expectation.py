"""Divergences on a GPU against the target's own logits: near ties pass, a wrong token fails the point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir

from eagle_lab.cli import expectation
from eagle_lab.config import load
from eagle_lab.config.digest import digest
from eagle_lab.config.errors import ServingFault
from eagle_lab.config.paths import conf_dir
from eagle_lab.serve import process
from eagle_lab.target.locate import locate
from eagle_lab.target.model import TargetModel

PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    load.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = load.load(compose("bench", ["target=tiny", "draft.vocab_size=64", "server.context_length=512"]))
    return config, locate(config.target, tmp_path_factory.mktemp("cache"))


def divergence(found: int, expected: int) -> dict[str, Any]:
    at = {"prompt": "p", "turn": 0, "position": 2, "expected": expected, "found": found}
    return {"spec": "chain_5", "measurement": "chain_5-m", "divergences": [at]}


@pytest.fixture
def judge(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """judge(model, row, baseline): the baseline's answers lie on disk as a measurement of their own."""

    def check(model: TargetModel, row: dict[str, Any], baseline: list[dict[str, Any]]) -> None:
        monkeypatch.setattr(expectation, "_requests", lambda *_: baseline)
        name = f"none-{digest(baseline)[:12]}"
        base = {"measurement": name, "fingerprint": name}
        expectation._check_ties(tiny[0].server.dtype, model, row, base, tmp_path)

    return check


def test_the_two_best_tokens_of_a_tie_pass_and_another_fails(tiny: Any, judge: Any) -> None:
    model = TargetModel(tiny[1], [], dtype="float32")
    whole = model.greedy(PROMPT, 4)
    baseline = [{"prompt": "p", "turn": 0, "prompt_ids": PROMPT, "token_ids": whole}]
    logits = model.next_logits([*PROMPT, *whole[:2]])
    assert logits.shape == (tiny[1].vocab_size,)
    best, *_, worst = logits.argsort(descending=True).tolist()

    row = divergence(best, worst)  # it was plain decoding that strayed
    judge(model, row, baseline)
    assert row["divergences"][0]["gap_ulps"] == 0

    wrong = divergence(worst, best)
    with pytest.raises(ServingFault, match=rf"chain_5: speculation .* 1 of 1 .* token 2: .* {best}, .* {worst}"):
        judge(model, wrong, baseline)
    assert wrong["divergences"][0]["gap_ulps"] > 2


class Fixed:
    """A target whose logits are always these: 0, 3.2 and 136 units of bfloat16 below the best."""

    logits = torch.tensor([17.0, 16.6, 0.0, *[5.0] * 20])
    asked = 0

    def next_logits(self, _: list[int]) -> torch.Tensor:
        return self.logits

    def answer_logits(self, _: list[int], tokens: list[int]) -> list[torch.Tensor]:
        self.asked += 1
        return [self.logits.expand(len(tokens), -1)]


def test_what_plain_decoding_itself_strays_by_is_rounding(judge: Any) -> None:
    """A divergence of more than 2 units passes where an answer without speculation is as far from float32."""
    model = Fixed()
    at = {"prompt": "p", "turn": 0, "position": 0, "expected": 0, "found": 1}
    row = {"spec": "chain_5", "measurement": "m", "divergences": [at]}
    plain = {"prompt": "p", "turn": 0, "prompt_ids": PROMPT, "token_ids": [0, 0]}
    with pytest.raises(ServingFault, match=r"3\.2 ulps .*; 2\.0 are rounding"):
        judge(model, row, [plain])
    assert row["plain_gap_ulps"] == 0

    other = {**plain, "prompt": "q", "token_ids": [0, 2]}
    with pytest.raises(ServingFault, match=r"answers with a token that is 136 ulps .* does not run these weights"):
        judge(model, row, [plain, other])
    judge(model, {**row, "quantization": "fp8"}, [plain, other])

    strayed = {**plain, "prompt": "q", "token_ids": [0, 1]}
    judge(model, row, [plain, strayed])
    assert row["plain_gap_ulps"] == pytest.approx(3.2)
    asked = model.asked
    judge(model, row, [plain, strayed])
    assert model.asked == asked  # it is kept beside the baseline


def test_an_end_where_the_other_goes_on_fails(tiny: Any, judge: Any) -> None:
    model = TargetModel(tiny[1], [])
    baseline = [{"prompt": "p", "turn": 0, "prompt_ids": PROMPT, "token_ids": model.greedy(PROMPT, 2)}]
    row = divergence(3, 3)
    row["divergences"][0]["expected"] = None
    with pytest.raises(ServingFault, match="gives None"):
        judge(model, row, baseline)


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_target_that_does_not_fit_beside_the_server_gets_its_room_or_is_said(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The kept server goes first; then the row says that nothing was checked."""
    done: list[str] = []

    def full(*_: Any) -> None:
        done.append("tried")
        if len([d for d in done if d == "tried"]) <= times:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32 GiB.")

    monkeypatch.setattr(expectation, "_add", full)
    monkeypatch.setattr(process, "stop_kept", lambda: done.append("stopped"))
    rows: list[dict[str, Any]] = [{}, {}]
    config, target = tiny
    expectation.add_expectations(config, target, SimpleNamespace(), rows)  # type: ignore[arg-type]
    assert done == (["tried", "stopped"] * times + ["tried"])[: 2 * 2 if times == 2 else None]
    says = "the target in float32 does not fit on the GPU (CUDA out of memory)"
    assert rows[1].get("unchecked") == (says if times == 2 else None)
