"""Does speculation leave the answers as they are?"""

from __future__ import annotations

from eagle_lab.config.schema import ServerKind
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "same answers"
CATCHES = "Greedy answers that change with speculation: a wrong verification, or a cache that is overwritten."
REPORTS = ("sglang PR#39253", "vllm#9565", "sglang PR#10787")
NEEDS = ("head", "target", "served")
LEADS_TO = ()


def look(s: Subject) -> Finding:
    served = s.server
    if served.plain is None:
        raise Skipped("that server is not ours to start without speculation")
    pairs = list(zip(served.answers, served.plain, strict=True))
    equal = sum(a.token_ids == b.token_ids for a, b in pairs)
    text = f"{equal} of {len(pairs)} as without speculation"
    if equal == len(pairs):
        return ok(text)
    if served.launch.server.kind is ServerKind.cpu and served.launch.server.dtype == "float32":
        return fail(text, "all of them, in float32", "the engine's verification is wrong: report it to the engine")
    return warn(text, "near ties only", "`eagle-lab bench` tells rounding from a wrong verification, token by token")
