"""Layer ids: one canonical form, and what each target class has to be told in SGLang."""

from __future__ import annotations

import pytest

from eagle_lab.config.aux_layers import ADDS_ONE_ONLY_AFTER_1, resolve, sglang_ids
from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Aux, AuxRule

LOW, LAST, QUARTERS, EXPLICIT = AuxRule.low_mid_high, AuxRule.last_three, AuxRule.quarters, AuxRule.explicit


def captured_by_sglang(ids: list[int], architecture: str) -> list[int]:
    """Our own statement of set_eagle3_layers_to_capture (sglang 0.5.20): the stream entering which layers."""
    if architecture in ADDS_ONE_ONLY_AFTER_1 and ids[0] != 1:
        return ids
    return [i + 1 for i in ids]


@pytest.mark.parametrize(
    ("rule", "n", "ids"),
    [
        (LOW, 61, [2, 30, 58]),
        (LOW, 30, [2, 15, 27]),
        (LOW, 8, [2, 4, 5]),
        (LOW, 7, [2, 3, 4]),
        (LAST, 30, [27, 28, 29]),
        (LAST, 4, [1, 2, 3]),
        (QUARTERS, 36, [9, 18, 27]),
        (QUARTERS, 4, [1, 2, 3]),
    ],
)
def test_rules(rule: AuxRule, n: int, ids: list[int]) -> None:
    assert resolve(Aux(rule=rule), n) == ids


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_low_mid_high_needs_seven_layers(n: int) -> None:
    """At n = 5 SGLang's own default collapses to one layer and skips fc without a word; 4 and 6 crash."""
    with pytest.raises(LabError, match=rf"on a target of {n} layers: too few layers"):
        resolve(Aux(rule=LOW), n)


@pytest.mark.parametrize(("rule", "n"), [(LAST, 3), (LAST, 1), (QUARTERS, 3), (QUARTERS, 1)])
def test_too_shallow_for_other_rules(rule: AuxRule, n: int) -> None:
    with pytest.raises(LabError, match="too few layers"):
        resolve(Aux(rule=rule), n)


@pytest.mark.parametrize("layers", [[1, 29], [1, 2, 3, 29], [5, 6]])
def test_explicit(layers: list[int]) -> None:
    assert resolve(Aux(rule=EXPLICIT, layers=layers), 30) == layers


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([2, 15, 30], r"\[30\] cannot be captured.*1 to 29"),
        ([0, 15, 27], r"\[0\] cannot be captured"),
        ([-1, 15, 27], r"\[-1\] cannot be captured"),
        ([2, 15, 99], r"\[99\] cannot be captured"),
        ([15], "single aux layer"),
        ([], "single aux layer"),
        ([27, 15, 2], "ascending and distinct"),
        ([2, 15, 15], "ascending and distinct"),
    ],
)
def test_explicit_refused(layers: list[int], message: str) -> None:
    with pytest.raises(LabError, match=message):
        resolve(Aux(rule=EXPLICIT, layers=layers), 30)


def test_layers_belong_to_the_explicit_rule() -> None:
    with pytest.raises(LabError, match=r"aux\.rule=low_mid_high with aux\.layers=\[1, 2\]"):
        Aux(rule=LOW, layers=[1, 2])
    with pytest.raises(LabError, match=r"aux\.rule=explicit with aux\.layers=None"):
        Aux(rule=EXPLICIT)


def test_kimi_k2() -> None:
    ids = resolve(Aux(), 61)
    assert sglang_ids(ids, "DeepseekV3ForCausalLM") == [1, 29, 57]
    assert len(ids) * 7168 == 21504


@pytest.mark.parametrize(
    ("architecture", "canonical", "ids"),
    [
        ("LlamaForCausalLM", [2, 15, 27], [1, 14, 26]),
        ("Qwen3ForCausalLM", [1, 2, 3], [0, 1, 2]),
        # these classes add 1 only when the first id is 1
        ("DeepseekV3ForCausalLM", [3, 30, 58], [3, 30, 58]),
        ("DeepseekV3ForCausalLM", [2, 3], [1, 2]),
        ("Glm4MoeLiteForCausalLM", [2, 23, 44], [1, 22, 43]),
        ("Glm4MoeLiteForCausalLM", [5, 23, 44], [5, 23, 44]),
    ],
)
def test_sglang_ids(architecture: str, canonical: list[int], ids: list[int]) -> None:
    assert sglang_ids(canonical, architecture) == ids


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", *sorted(ADDS_ONE_ONLY_AFTER_1)])
def test_sglang_captures_the_canonical_streams(architecture: str) -> None:
    for first in range(2, 12):
        canonical = [first, first + 1, 20]
        assert captured_by_sglang(sglang_ids(canonical, architecture), architecture) == canonical


def test_a_list_that_the_class_cannot_express() -> None:
    with pytest.raises(LabError, match=r"\[1, 30, 58\] on DeepseekV3ForCausalLM.*Start at layer 2"):
        sglang_ids([1, 30, 58], "DeepseekV3ForCausalLM")
