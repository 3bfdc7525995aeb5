"""Does the head reach as far as requests may?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "positions"
CATCHES = "max_position_embeddings below the served context: past it drafts are garbage or the server dies."
REPORTS = ("sglang#6783", "sglang PR#10787", "vllm#48894", "vllm#23072", "SpecForge#289")
NEEDS = ("head",)
LEADS_TO = ()


def look(s: Subject) -> Finding:
    found, served = s.field("max_position_embeddings"), s.config.server.context_length
    if found is None:
        return warn("not said: 2,048 are taken", f"at least {served:,}", "write max_position_embeddings")
    if found < served:
        return fail(f"{found:,}", f"at least server.context_length={served:,}", f"set server.context_length={found}")
    return ok(f"{found:,}, {served:,} are served")
