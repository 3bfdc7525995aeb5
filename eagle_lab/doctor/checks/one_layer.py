"""SGLang's class runs one decoder layer."""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "one layer"
CATCHES = "num_hidden_layers other than 1: SGLang fails at start, or builds layers that no weight reaches."
REPORTS = ("SpecForge#129",)
NEEDS = ("head",)
LEADS_TO = ("tensors",)


def look(s: Subject) -> Finding:
    found = s.field("num_hidden_layers")
    if found != 1:
        return fail(f"num_hidden_layers={found}", "1", "set num_hidden_layers to 1 in config.json")
    return ok("1")
