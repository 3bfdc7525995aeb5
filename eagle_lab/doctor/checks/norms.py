"""Are the norms that training used those that SGLang runs?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "norms"
CATCHES = (
    "Norm weights without the flag that makes SGLang run them (fc_norm, norm_before_fc), a flag without weights, "
    "or a flag that SGLang does not have (norm_before_residual)."
)
REPORTS = ("sglang#32334", "sglang#24663", "vllm PR#14464")
NEEDS = ("head",)
LEADS_TO = ("tensors",)


def look(s: Subject) -> Finding:
    head = s.given
    weights = sorted(n for n in head.headers if n.startswith("fc_norm."))
    whole = [n for n in head.headers if n.startswith("input_norm.")]
    if head.config.get("norm_before_residual"):
        return fail("norm_before_residual=true", "false", "SGLang ignores it: another function than trained is served")
    if weights and not head.aux_norms:
        return fail(f"{len(weights)} fc_norm weights, fc_norm is not set", "fc_norm=true", "SGLang skips them: set it")
    if head.aux_norms and not weights:
        return fail("fc_norm=true, no weights of it", "a weight per aux state", "noise is served: export it again")
    if bool(whole) != head.norm_before_fc:
        return fail(f"norm_before_fc={head.norm_before_fc}, {len(whole)} weights of it", "both or none", "set the flag")
    said = [n for n, on in (("fc_norm", head.aux_norms), ("norm_before_fc", head.norm_before_fc)) if on]
    said += ["norm_output"] if head.config.get("norm_output") else []
    return ok(", ".join(said) or "none beyond the layer's own")
