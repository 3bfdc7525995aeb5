"""SGLang's class runs one decoder layer, vLLM's as many as are stated."""

from __future__ import annotations

import re

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "one layer"
CATCHES = "More layers stated than there are: both engines serve noise in them, or fail at start."
REPORTS = ("SpecForge#129",)
NEEDS = ("head",)
LEADS_TO = ("tensors",)


def look(s: Subject) -> Finding:
    found = s.field("num_hidden_layers")
    if not isinstance(found, int) or found < 1:
        return fail(f"num_hidden_layers={found}", "1", "write how many layers the head has")
    there = {int(m[1]) for n in s.given.headers if (m := re.match(r"layers\.(\d+)\.", n))}
    if missing := [i for i in range(found) if there and i not in there]:
        return fail(f"num_hidden_layers={found}, no layer {missing[0]}", f"{len(there)}", "correct num_hidden_layers")
    if found > 1 and s.engine is Engine.sglang:
        return warn(f"{found}", "1", "older releases of SGLang serve one layer only")
    return ok(f"{found}")
