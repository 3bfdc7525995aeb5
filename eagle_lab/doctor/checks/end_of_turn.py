"""Can the head draft the end of a turn?"""

from __future__ import annotations

import torch

from eagle_lab.doctor.finding import Finding, Skipped, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "end of turn"
CATCHES = "A draft vocabulary without the target's end-of-turn token: every answer ends with a rejected draft."
REPORTS = ("EAGLE#317",)
NEEDS = ("head", "target")
LEADS_TO = ()


def look(s: Subject) -> Finding:
    if "d2t" not in s.given.headers:
        raise Skipped("the draft vocabulary is the whole one")
    ids = set((s.given.tensor("d2t").long() + torch.arange(s.given.headers["d2t"].shape[0])).tolist())
    ends = s.its_target.eos_token_ids
    if missing := [t for t in ends[:1] if t not in ids]:
        return warn(f"token {missing[0]} cannot be drafted", "in the draft vocabulary", "train with it in the map")
    return ok(f"token {ends[0]} can be drafted" if ends else "the target names none")
