"""Does the head carry the target's embedding, or another?"""

from __future__ import annotations

import torch
from torch import Tensor

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "embedding"
CATCHES = (
    "An embedding that is not the target's: SGLang overwrites it, so a trained one is lost; vLLM keeps it, so a "
    "random one is served."
)
REPORTS = ("TorchSpec#38", "SpecForge#122", "sglang#30775")
NEEDS = ("head", "target")
LEADS_TO = ()

EMBEDDING = "embed_tokens.weight"
ROWS = 64
AKIN = 0.5
"""Mean cosine to the target's rows; one that was trained from them keeps near 1, a random one has 0."""


def look(s: Subject) -> Finding:
    narrower = s.field("target_hidden_size") not in (None, s.field("hidden_size"))
    if EMBEDDING not in s.given.headers:
        if narrower and s.engine is Engine.vllm:
            return fail("none", "one of the head's width", "vLLM shares the target's, which is of another width")
        return ok("none: the target's is used")
    if narrower:
        raise Skipped("of another width than the target's: its own is served")
    try:
        theirs = s.target_weights.embed_weight[:ROWS].float()
    except LabError as e:
        raise Skipped(f"the target's cannot be read ({e})") from e
    own = s.given.rows(EMBEDDING, slice(0, ROWS)).float()
    if own.shape != theirs.shape:
        return fail(f"{list(s.given.headers[EMBEDDING].shape)}", "the target's sizes", "leave it out of the export")
    apart = float((own - theirs).abs().max())
    if apart <= 0.01 * float(theirs.abs().max()):
        return ok("the target's")
    if s.engine is Engine.vllm:
        return _kept(own, theirs)
    return fail(f"up to {apart:.2g} from the target's", "equal", "SGLang overwrites it; leave it out of the export")


def _kept(own: Tensor, theirs: Tensor) -> Finding:
    """vllm 0.33.0, v1/worker/gpu/spec_decode/eagle/utils.py: kept unless it equals the target's bit for bit."""
    cosine = float(torch.cosine_similarity(own, theirs, dim=-1).nan_to_num(0.0).mean())
    said = f"its own, of cosine {cosine:.2f} to the target's"
    if cosine < AKIN:
        return fail(said, "the target's, or one trained from it", "vLLM drafts with it: leave it out of the export")
    return ok(f"{said}: vLLM drafts with it")
