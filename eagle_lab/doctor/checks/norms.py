"""Are the norms that training used those that the engine runs?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.doctor.subject import Subject

NAME = "norms"
CATCHES = (
    "Norm weights without the flag that makes SGLang run them (fc_norm, norm_before_fc), a flag without weights, "
    "or a flag that SGLang does not have (norm_before_residual). vLLM has it, takes true for it where speculators' "
    "layout leaves it out, and refuses norm weights under SGLang's older flag. An rms_norm_eps that is none, or not "
    "the target's."
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
    return _eps(s) or ok(", ".join(_said(head)) or "none beyond the layer's own")


def _eps(s: Subject) -> Finding | None:
    """Left out, transformers' LlamaConfig takes 1e-6 for both; in speculators' layout it is a matter of `shapes`."""
    if s.given.nested and "rms_norm_eps" not in s.given.config:
        return None
    own = s.given.config.get("rms_norm_eps", 1e-6)
    if not isinstance(own, float | int):
        return fail(f"rms_norm_eps={own!r}", "a small number", "write the one that training used")
    wanted = s.target.config.get("rms_norm_eps", 1e-6) if s.target else own
    if own != wanted:
        say = fail if s.given.export else warn  # our exporter writes the target's
        return say(f"rms_norm_eps={own}", f"{wanted}, the target's", "write it, unless the head was trained otherwise")
    return None


def _said(head: HeadDirectory) -> list[str]:
    said = [n for n, on in (("fc_norm", head.aux_norms), ("norm_before_fc", head.norm_before_fc)) if on]
    said += [n for n in ("norm_before_residual",) if head.config.get(n)]
    return said + (["norm_output"] if head.config.get("norm_output") else [])
