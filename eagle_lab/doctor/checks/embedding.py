"""Does the head carry the target's embedding, or another?"""

from __future__ import annotations

from eagle_lab.config.errors import LabError
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

ROWS = 64


def look(s: Subject) -> Finding:
    name = "embed_tokens.weight"
    if name not in s.given.headers:
        return ok("none: the target's is used")
    if s.field("target_hidden_size") not in (None, s.field("hidden_size")):
        raise Skipped("of another width than the target's: its own is served")
    try:
        theirs = s.target_weights.embed_weight[:ROWS]
    except LabError as e:
        raise Skipped(f"the target's cannot be read ({e})") from e
    own = s.given.rows(name, slice(0, ROWS))
    if own.shape != theirs.shape:
        return fail(f"{list(s.given.headers[name].shape)}", "the target's sizes", "leave it out of the export")
    apart = float((own.float() - theirs.float()).abs().max())
    size = float(theirs.float().abs().max())
    if apart > 0.01 * size:
        return fail(f"up to {apart:.2g} from the target's", "equal", "SGLang overwrites it; leave it out of the export")
    return ok("the target's")
