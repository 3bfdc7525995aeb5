"""Greedy speculation must not change a token: the answers of a spec point against those of plain decoding."""

from __future__ import annotations

from typing import Any


def differences(
    baseline: list[dict[str, Any]], found: list[dict[str, Any]], num_draft_tokens: int = 0
) -> list[dict[str, Any]]:
    """The first divergence of every prompt whose answers differ, in the suite's order.

    A speculating server's last round may reach max_new_tokens and the end of the turn at once. SGLang 0.5.15 then
    returns what it accepted behind that end, too, and says `length` instead of `stop` (schedule_batch.py,
    check_finished): up to num_draft_tokens tokens that no client should see, and no other answer.

    Once a turn differs the later ones were asked in another context, so each prompt is reported once. `expected` or
    `found` is None where one answer ends. ValueError when the two did not ask the same turns.
    """
    wanted = {(r["prompt"], r["turn"]): r for r in baseline}
    got = {(r["prompt"], r["turn"]): r for r in found}
    if wanted.keys() != got.keys():
        raise ValueError("the two measurements did not ask the same turns")
    first: dict[str, dict[str, Any]] = {}
    for (prompt, turn), answer in got.items():
        plain, tokens = wanted[prompt, turn], answer["token_ids"]
        end = len(plain["token_ids"])
        ended = plain.get("finish_reason") == "stop" and answer.get("finish_reason") == "length"
        if ended and end < len(tokens) <= end + num_draft_tokens:
            tokens = tokens[:end]
        if prompt not in first and (at := divergence(plain["token_ids"], tokens)) is not None:
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
