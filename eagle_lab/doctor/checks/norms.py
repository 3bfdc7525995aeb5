"""Are the norms that training used those that the engine runs?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "norms"
CATCHES = (
    "Norm weights without the flag that makes SGLang run them (fc_norm, norm_before_fc), a flag without weights, "
    "or a flag that SGLang does not have (norm_before_residual). vLLM has it, takes true for it where speculators' "
    "layout leaves it out, and refuses norm weights under SGLang's older flag."
)
REPORTS = ("sglang#32334", "sglang#24663", "vllm PR#14464")
NEEDS = ("head",)
LEADS_TO = ("tensors",)

UNFLAGGED = {Engine.sglang: "SGLang skips them", Engine.vllm: "vLLM refuses them"}


def look(s: Subject) -> Finding:
    head = s.given
    weights = sorted(n for n in head.headers if n.startswith("fc_norm."))
    whole = [n for n in head.headers if n.startswith("input_norm.")]
    if head.config.get("norm_before_residual") and (s.engine is Engine.sglang or head.export):
        if s.engine is Engine.vllm:
            return fail("norm_before_residual is taken for true", "false, as trained", "write false into config.json")
        return fail("norm_before_residual=true", "false", "SGLang ignores it: another function than trained is served")
    if weights and not head.aux_norms:
        return fail(
            f"{len(weights)} fc_norm weights, fc_norm is not set", "fc_norm=true", f"{UNFLAGGED[s.engine]}: set it"
        )
    if head.aux_norms and not weights:
        return fail("fc_norm=true, no weights of it", "a weight per aux state", "noise is served: export it again")
    if bool(whole) != head.norm_before_fc:
        return fail(f"norm_before_fc={head.norm_before_fc}, {len(whole)} weights of it", "both or none", "set the flag")
    said = [n for n, on in (("fc_norm", head.aux_norms), ("norm_before_fc", head.norm_before_fc)) if on]
    said += [n for n in ("norm_before_residual",) if head.config.get(n)]
    said += ["norm_output"] if head.config.get("norm_output") else []
    return ok(", ".join(said) or "none beyond the layer's own")
