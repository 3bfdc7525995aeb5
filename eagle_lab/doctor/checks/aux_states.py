"""Are the states that the server feeds the head those of the layers it was trained on?"""

from __future__ import annotations

import torch
from torch import Tensor

from eagle_lab.config.aux_layers import sglang_ids
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "aux states"
CATCHES = (
    "States of other layers than those of the training, off by one above all, or of no layer at all (a rotated or"
    " quantised target): the server's are compared with every layer's of the same weights in Hugging Face."
)
REPORTS = ("sglang PR#25454", "vllm#43671", "vllm#50170", "tokenspeed PR#526", "vllm-ascend#5974", "SpecForge PR#431")
NEEDS = ("head", "target", "served")
LEADS_TO = (
    "training equals serving",
    "layer convention",
    "meaning of the draft ids",
    "random head",
    "accept length",
    "break-even",
)

SAME = 0.99
"""Mean cosine of the same layer's states; float32 gives 1.0000, bfloat16 0.999. Neighbours may come as near as 0.98."""
EQUAL = 1e-5
LOUD = 100.0
"""Between the RMS of the quietest and the loudest state: fc then learns from the loudest alone at first."""


def look(s: Subject) -> Finding:
    states = s.server.states
    if states is None:
        raise Skipped("the server returns no hidden states (--enable-return-hidden-states)")
    streams, wanted = s.truth.streams, s.aux_layers
    size = streams.shape[-1]
    if states.shape[0] < streams.shape[1] or states.shape[-1] != len(wanted) * size:
        raise Skipped(f"the server returned states of {tuple(states.shape)}, {len(wanted)} x {size} wide are wanted")
    slots = states[: streams.shape[1]].split(size, -1)
    found = [nearest(slot, streams, k) for slot, k in zip(slots, wanted, strict=True)]
    text = ", ".join(f"{k} (cosine {cosine:.4f})" for k, cosine in found)
    lost = [f"slot {j + 1}" for j, (_, cosine) in enumerate(found) if cosine < SAME]
    if lost:
        return fail(
            f"{' and '.join(lost)} equal no layer's: nearest {text}",
            f"the states entering layers {wanted}",
            "the server runs other weights, a rotated or quantised target, or another prompt",
        )
    if [k for k, _ in found] != wanted:
        shifts = {k - w for (k, _), w in zip(found, wanted, strict=True)}
        off = f", off by {shifts.pop():+d}" if len(shifts) == 1 else ""
        return fail(
            f"the server feeds the states entering layers {text}{off}",
            f"{wanted}, as trained",
            f"write {sglang_ids(wanted, s.its_target.architecture)} into eagle_config of the head's config.json",
        )
    rms = [float(streams[k][1:].square().mean().sqrt()) for k in wanted]
    if max(rms) > LOUD * min(rms):
        return warn(
            f"layers {text}; RMS {', '.join(f'{r:.3g}' for r in rms)}", "states of one size", "draft.fc_norm=true"
        )
    return ok(f"layers {text}; RMS {', '.join(f'{r:.3g}' for r in rms)}")


def nearest(slot: Tensor, streams: Tensor, wanted: int) -> tuple[int, float]:
    """(canonical layer, mean cosine over tokens) of the layer whose states are most alike; `wanted` among equals.

    slot [S, H], streams [n, S, H]. The first token is left out where there are others: its state is huge and nearly
    the same in most layers.
    """
    first = 1 if slot.shape[0] > 1 else 0
    cosines = torch.cosine_similarity(streams[:, first:], slot[None, first:], dim=-1).nan_to_num(-1.0).mean(-1)
    best = int(cosines.argmax())
    if cosines[wanted] > cosines[best] - EQUAL:
        best = wanted
    return best, float(cosines[best])
