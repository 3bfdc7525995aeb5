"""Was somebody else's head trained on the layers next to those that its config names?"""

from __future__ import annotations

from eagle_lab.config.aux_layers import sglang_ids
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.evaluate.intervals import pooled_survival

NAME = "layer convention"
CATCHES = (
    "A head whose layer ids are written in another engine's convention: the served tokens are replayed with every aux"
    " layer one lower and one higher, too, and one of them accepts clearly more."
)
REPORTS = ("sglang PR#25454", "vllm#43671", "vllm#40727", "tokenspeed PR#526", "EAGLE#261")
NEEDS = ("head", "target", "served")
LEADS_TO = ("random head", "accept length", "break-even")

MORE = 1.2
"""Times the drafts; a trained head loses 10 % to 80 % of them by one layer."""


def look(s: Subject) -> Finding:
    if s.given.export.get("aux_layers"):
        raise Skipped("export.json names the layers of its training")
    found = {0: s.truth.replayed} | {by: r for by in (-1, 1) if (r := s.truth.shifted(by)) is not None}
    drafts = {by: sum(pooled_survival(r.predicted for r in part)) for by, part in found.items()}
    best = max(drafts, key=lambda by: drafts[by])
    text = ", ".join(f"{1 + d:.2f} with layers {[k + by for k in s.aux_layers]}" for by, d in sorted(drafts.items()))
    layers = [k + best for k in s.aux_layers]
    if best and drafts[best] > MORE * drafts[0] + 0.02:
        return fail(
            f"replayed accept length {text}",
            f"the states entering layers {layers}",
            f"write {sglang_ids(layers, s.its_target.architecture)} into eagle_config of its config.json",
        )
    return ok(f"replayed accept length {text}")
