"""Does the head reach as far as requests may?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor import vllm
from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.subject import Subject
from eagle_lab.draft.shape import rope_parameters

NAME = "positions"
CATCHES = (
    "max_position_embeddings below the served context: past it drafts are garbage or the server dies; vLLM raises it, "
    "or, with a rope that is scaled by it, serves shorter requests only."
)
REPORTS = ("sglang#6783", "sglang PR#10787", "vllm#48894", "vllm#23072", "SpecForge#289")
NEEDS = ("head",)
LEADS_TO = ()


def look(s: Subject) -> Finding:
    found, served = s.field("max_position_embeddings"), s.config.server.context_length
    if s.engine is Engine.vllm and (found is None or found < served):
        return _raised(found, served, str(rope_parameters(s.given.config)["rope_type"]))
    if found is None:
        return warn("not said: 2,048 are taken", f"at least {served:,}", "write max_position_embeddings")
    if found < served:
        return fail(f"{found:,}", f"at least server.context_length={served:,}", f"set server.context_length={found}")
    return ok(f"{found:,}, {served:,} are served")


def _raised(found: int | None, served: int, kind: str) -> Finding:
    """vllm 0.33.0, config/speculative.py, _maybe_override_draft_max_position_embeddings."""
    said = "not said" if found is None else f"{found:,}"
    if found is None or kind in vllm.RESIZED_ROPES:
        return ok(f"{said}; vLLM makes it the {served:,} that are served")
    return warn(f"{said} with {kind} rope", f"at least {served:,}", "vLLM lowers the served length to it")
