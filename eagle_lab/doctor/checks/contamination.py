"""Were the prompts that measure kept out of those that train?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "contamination"
CATCHES = "A suite whose prompts were not kept out of the training data: its accept length flatters the head."
REPORTS = ("speculators#613", "SpecForge#113")
NEEDS = ("dataset",)
LEADS_TO = ()


def look(s: Subject) -> Finding:
    suite, kept_out = s.config.suite, s.config.data.decontaminate
    dropped = s.tokens.manifest["dropped"].get("prompt in a suite", 0)
    known = {suite.name, suite.path} & set(kept_out)
    if not known:
        wanted = suite.path or suite.name
        return warn(
            f"the prompts of {wanted} were not kept out (data.decontaminate={kept_out})",
            "the suite in data.decontaminate",
            f"data.decontaminate='[{','.join([*kept_out, wanted])}]' makes the dataset anew",
        )
    return ok(f"{suite.name} was kept out: {dropped} prompts dropped")
