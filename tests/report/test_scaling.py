"""The fit of accept length against data, on rows that were made by its own law."""

from __future__ import annotations

import math
from typing import Any

import pytest

from eagle_lab.report.scaling import against_data
from tests.report.conftest import chain

SIZES = (1_000_000, 2_000_000, 4_000_000, 8_000_000)


def law(tokens: float) -> float:
    """A fifth of a chain of 3 drafts is wrong with 16 M tokens; half the data makes that 1.2 times as much."""
    return 1 + 3 * (1 - 0.2 * 1.2 ** -math.log2(tokens / 16_000_000))


def rows(*sizes: int) -> list[dict[str, Any]]:
    return [
        {**chain(4, law(n), 26.0, head=f"{n:x}"[0]), "trained_with": f"trainer.max_tokens={n}", "fingerprint": str(n)}
        for n in sizes
    ]


def test_what_follows_the_law_is_predicted_by_it() -> None:
    header, cells = against_data(rows(*SIZES))
    assert header == ["spec", "supervised tokens", "accept length", "by the fit"]
    assert [c[1] for c in cells] == ["1,000,000", "2,000,000", "4,000,000", "8,000,000", "32,000,000"]
    assert [float(c[3]) for c in cells] == pytest.approx([law(n) for n in (*SIZES, 32_000_000)], abs=0.006)
    assert cells[0][0] == "[chain_4](#row-1000000)"
    assert cells[-1][0] == "chain_4, not measured"


def test_two_sizes_are_no_curve_and_another_difference_is_no_size() -> None:
    assert against_data(rows(*SIZES[:2]))[1] == []
    others = [{**row, "trained_with": f"loss=kl {row['trained_with']}"} for row in rows(*SIZES)]
    assert against_data(others)[1] == []
    assert against_data([{**row, "trained_with": None} for row in rows(*SIZES)])[1] == []
