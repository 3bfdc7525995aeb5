"""Greedy speculation must not change a token: the answers of a spec point against those of plain decoding."""

from __future__ import annotations

from typing import Any


def differences(baseline: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first divergence of every prompt whose answers differ, in the suite's order.

    Once a turn differs the later ones were asked in another context, so each prompt is reported once. `expected` or
    `found` is None where one answer ends. ValueError when the two did not ask the same turns.
    """
    wanted = {(r["prompt"], r["turn"]): r["token_ids"] for r in baseline}
    got = {(r["prompt"], r["turn"]): r["token_ids"] for r in found}
    if wanted.keys() != got.keys():
        raise ValueError("the two measurements did not ask the same turns")
    first: dict[str, dict[str, Any]] = {}
    for (prompt, turn), tokens in got.items():
        if prompt not in first and (at := divergence(wanted[prompt, turn], tokens)) is not None:
            first[prompt] = {"prompt": prompt, "turn": turn, "position": at[0], "expected": at[1], "found": at[2]}
    return list(first.values())


def divergence(a: list[int], b: list[int]) -> tuple[int, int | None, int | None] | None:
    """(position, token of a, token of b) where two token lists part; None when they are equal."""
    for position in range(max(len(a), len(b))):
        x = a[position] if position < len(a) else None
        y = b[position] if position < len(b) else None
        if x != y:
            return position, x, y
    return None
