"""Divergences on a GPU against the target's own logits: near ties pass, a wrong token fails the point."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir

from eagle_lab.cli import expectation
from eagle_lab.config import load
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


def test_the_two_best_tokens_of_a_tie_pass_and_another_fails(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config, target = tiny
    model = TargetModel(target, [], dtype="float32")
    whole = model.greedy(PROMPT, 4)
    answer = whole[:2]
    baseline = [{"prompt": "p", "turn": 0, "prompt_ids": PROMPT, "token_ids": whole}]
    logits = model.next_logits([*PROMPT, *answer])
    assert logits.shape == (target.vocab_size,)
    best, *_, worst = logits.argsort(descending=True).tolist()

    row = divergence(best, best)
    expectation._check_ties(config.server.dtype, model, row, baseline)
    assert row["divergences"][0]["gap_ulps"] == 0

    wrong = divergence(worst, best)
    with pytest.raises(ServingFault, match=rf"chain_5: speculation .* 1 of 1 .* token 2: .* {best}, .* {worst}"):
        expectation._check_ties(config.server.dtype, model, wrong, baseline)
    assert wrong["divergences"][0]["gap_ulps"] > 2


def test_what_plain_decoding_itself_strays_by_is_rounding(tiny: Any) -> None:
    """A divergence of more than 2 units passes where an answer without speculation is as far from float32."""
    config, target = tiny
    model = TargetModel(target, [], dtype="float32")
    first, second = model.greedy(PROMPT, 2)
    order = model.next_logits(PROMPT).argsort(descending=True).tolist()
    at = {"prompt": "p", "turn": 0, "position": 0, "expected": first, "found": order[3]}
    row = {"spec": "chain_5", "measurement": "m", "divergences": [at]}
    plain = {"prompt": "p", "turn": 0, "prompt_ids": PROMPT, "token_ids": [first, second]}
    with pytest.raises(ServingFault, match=r"; 2\.0 are rounding"):
        expectation._check_ties(config.server.dtype, model, row, [plain])
    assert row["plain_gap_ulps"] == 0 < 2 < at["gap_ulps"]

    other = {**plain, "prompt": "q", "token_ids": [order[-1]]}
    with pytest.raises(ServingFault, match=r"plain decoding itself answers .* does not run these weights"):
        expectation._check_ties(config.server.dtype, model, row, [plain, other])
    strayed = {**plain, "prompt": "q", "token_ids": [order[4]]}
    expectation._check_ties(config.server.dtype, model, row, [plain, strayed])
    assert 2 * row["plain_gap_ulps"] >= at["gap_ulps"]


def test_an_end_where_the_other_goes_on_fails(tiny: Any) -> None:
    config, target = tiny
    model = TargetModel(target, [])
    baseline = [{"prompt": "p", "turn": 0, "prompt_ids": PROMPT, "token_ids": model.greedy(PROMPT, 2)}]
    row = divergence(3, 3)
    row["divergences"][0]["expected"] = None
    with pytest.raises(ServingFault, match="gives None"):
        expectation._check_ties(config.server.dtype, model, row, baseline)


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
