"""Is the server that answers the one that was asked for, and does it feed the head its aux states?"""

from __future__ import annotations

from eagle_lab.config.errors import ServingFault
from eagle_lab.doctor.checks import aux_states
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok, warn
from eagle_lab.doctor.subject import Subject
from eagle_lab.serve.probe import check_width
from eagle_lab.serve.running import differences, speculation

NAME = "served as EAGLE-3"
CATCHES = (
    "A server that was asked for EAGLE instead of EAGLE3, runs other speculation numbers or another head, or never"
    " captures the aux states: by what it says of itself, and by the width of the states that it returns."
)
REPORTS = ("sglang PR#21272", "sglang#36528", "slime#1177", "sglang#24663")
NEEDS = ("head", "target")
LEADS_TO = (aux_states.NAME, *aux_states.LEADS_TO, "chat template", "same answers")


def look(s: Subject) -> Finding:
    if s.served is None and s.unserved is None:
        raise Skipped(s.missing.get("served", "no server was asked"))
    served = s.server
    faults = differences(served.info, speculation(served.launch))
    if faults:
        return fail(" ".join(faults), "what was asked for", "start it with the command that `eagle-lab serve` prints")
    if served.states is None:
        return warn(
            "EAGLE3, but no hidden states are returned: what the head is fed cannot be seen",
            "--enable-return-hidden-states",
            "start the server with it, or go by `training equals serving` below",
        )
    width, hidden = served.states.shape[-1], s.its_target.hidden_size
    try:
        check_width(width, len(s.aux_layers) * hidden, hidden, served.launch)
    except ServingFault as e:
        return fail(str(e), f"{len(s.aux_layers)} states of {hidden}", "mend the first of these that applies")
    return ok(f"EAGLE3, aux states {width} wide")
