"""Are the weights numbers, and were they trained?"""

from __future__ import annotations

import math

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "values"
CATCHES = (
    "NaN or Inf (in tensors of over 16 million values: in samples), fc or lm_head all equal, rows of lm_head at zero."
)
REPORTS = ("SpecForge#104", "SpecForge#577", "EAGLE#222")
NEEDS = ("head",)
LEADS_TO = ("embedding",)

VITAL = ("fc.weight", "lm_head.weight")
"""At zero they draft nothing; a layer at zero hands its input on."""
SKIPPED = ("d2t", "t2d", "embed_tokens.weight")
WHOLE = 1 << 24
"""Values of a tensor that is read whole: all of a small head's. An 8B-class one would be 0.8 GB to read."""


def look(s: Subject) -> Finding:
    drafts_with = ("embed_tokens.weight",) if s.engine is Engine.vllm else ()
    names = [n for n in s.given.headers if n not in SKIPPED or n in drafts_with]
    large = 0
    for name in names:
        whole = math.prod(s.given.headers[name].shape) <= WHOLE
        large += not whole
        t = (s.given.tensor(name) if whole else s.given.sample(name)).float()
        if not t.numel():
            return fail(f"{name} is empty", "trained weights", "export it again")
        if not bool(t.isfinite().all()):
            return fail(f"NaN or Inf in {name}", "finite weights", "take an earlier checkpoint, lower the rate")
        if name in VITAL and bool((t == t.flatten()[0]).all()):
            return fail(f"{name} is {float(t.flatten()[0]):g} everywhere", "trained weights", "export a trained head")
        if name == "lm_head.weight" and bool((t == 0).all(-1).any()):
            return fail("rows of lm_head are zero", "trained rows", "the map names tokens that were never trained")
    sampled = f" ({large} of them: beginning, middle and end)" if large else ""
    return ok(f"{len(names)} tensors, finite, not constant{sampled}")
