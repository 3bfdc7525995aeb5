"""Acceptance of greedy serving, replayed from hits: which rounds a chain of drafts would take over known tokens.

A round at row r proposes a chain; its correct drafts are the leading hits; the next round starts that many rows plus
one (the bonus token) further. Exact when the tokens are the target's own greedy text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def rounds(hits: npt.NDArray[np.bool_], num_steps: int, tokens: int | None = None) -> list[int]:
    """Correct drafts of each verify step over one answer.

    hits [n, >= num_steps]: row 0 is the first draft call after prefill. tokens: generated tokens of the answer, the
    prefill's token included; verify steps stop once they are reached. None: as many rounds as the rows hold.
    """
    leading = hits[:, :num_steps].cumprod(axis=1).sum(axis=1)
    out: list[int] = []
    row, made = 0, 1
    while row < len(leading) and (tokens is None or made < tokens):
        correct = int(leading[row])
        out.append(correct)
        row += correct + 1
        made += correct + 1
    return out


def accept_length(per_round: list[int]) -> float:
    """1 + correct drafts / verify steps; 1.0 without a verify step."""
    return 1.0 + sum(per_round) / len(per_round) if per_round else 1.0


def histogram(per_round: list[int], num_steps: int) -> list[int]:
    """Index k: verify steps with exactly k correct drafts, k = 0..num_steps."""
    return np.bincount(per_round, minlength=num_steps + 1).tolist()
