"""Runs the head over tokens that a server returned and predicts, round by round, what the server must have accepted.

With a chain and greedy answers the prediction is exact in float32: every difference means that serving, not training,
is at fault (wrong states, wrong weights, wrong positions). Trees are not replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import check_fields
from eagle_lab.config.model_config import read_head
from eagle_lab.draft.head import Head
from eagle_lab.draft.replay import histogram, rounds
from eagle_lab.draft.shape import HeadShape
from eagle_lab.draft.unroll import Batch, hits
from eagle_lab.export.head_files import load
from eagle_lab.export.sglang import read

SHAPE: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"), int),
    **dict.fromkeys(("head_dim", "vocab_size", "draft_vocab_size", "max_position_embeddings"), int),
    **{"num_aux_hidden_states": int, "rms_norm_eps": float, "rope_parameters": dict},
}
"""Fields of config.json that a replay needs."""


@dataclass(frozen=True)
class Replayed:
    """One request: the server's histogram and ours, index k = verify steps with exactly k correct drafts."""

    request: dict[str, Any]
    served: list[int]
    predicted: list[int]

    @property
    def equal(self) -> bool:
        width = max(len(self.served), len(self.predicted))
        return [*self.served, *[0] * (width - len(self.served))] == [
            *self.predicted,
            *[0] * (width - len(self.predicted)),
        ]


def shape_of(export: Path) -> HeadShape:
    """The shape of an exported head, from its config.json, where the exporter writes every field out."""
    c = read_head(export)
    check_fields(c, SHAPE, f"{export}/config.json", "Export the head again.")
    if c.get("norm_before_fc"):
        raise LabError(f"{export}: heads with norm_before_fc cannot be replayed.")
    return HeadShape(
        target_hidden_size=c.get("target_hidden_size") or c["hidden_size"],
        num_aux=c["num_aux_hidden_states"],
        fc_norm=bool(c.get("fc_norm") or c.get("use_aux_norm")),
        norm_output=bool(c.get("norm_output")),
        **{name: c[name] for name in SHAPE if name != "num_aux_hidden_states"},
    )


def draftable(export: Path) -> npt.NDArray[np.bool_]:
    """bool [V]: which of the target's tokens the head can draft; all of them without a t2d."""
    t2d = load(export).get("t2d")
    return np.ones(read_head(export)["vocab_size"], dtype=np.bool_) if t2d is None else t2d.numpy().astype(np.bool_)


def load_head(export: Path, embed: torch.Tensor) -> Head:
    """The exported head with the target's embedding [V, H], on its device and in float32."""
    shape = shape_of(export)
    return Head.with_tensors(shape, read(export, shape), embed)


def replay(
    head: Head,
    requests: Sequence[dict[str, Any]],
    num_steps: int,
    states: Callable[[list[int], int], Batch],
    continuation: Callable[[list[int], int], list[int]],
) -> list[Replayed]:
    """Predicts each request's acceptance histogram.

    requests: prompt_ids, token_ids (as returned, greedy) and histogram of each. states(ids, answer_start): one document
    with the target's states, every position from the last prompt token on as a row. continuation(ids, n): the target's
    next n greedy tokens; the last verify step may reach past the returned text, and counts what it accepts there.
    """
    out = []
    for request in requests:
        prompt, answer = request["prompt_ids"], request["token_ids"]
        known = [*prompt, *answer]
        batch = states([*known, *continuation(known, num_steps)], len(prompt))
        found = hits(head, batch, num_steps).cpu().numpy().astype(np.bool_)
        per_round = rounds(found, num_steps, tokens=len(answer))
        out.append(Replayed(request, list(request["histogram"]), histogram(per_round, num_steps)))
    return out
