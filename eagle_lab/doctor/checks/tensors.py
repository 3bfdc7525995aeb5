"""Does every parameter of the engine's class get a value, and is every tensor taken?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok, warn
from eagle_lab.doctor.subject import Subject
from eagle_lab.export.head_files import LAYER_TENSORS

NAME = "tensors"
CATCHES = (
    "Tensors that are missing (both engines serve noise there) or under a name that SGLang skips without a word, and"
    " that vLLM refuses: fc, a layer's weights, lm_head, d2t."
)
REPORTS = ("vllm#6830", "Automodel PR#2447", "verl-SpeCo PR#66", "sglang#8229")
NEEDS = ("head",)
LEADS_TO = ("shapes", "vocabulary map", "aux width", "values", "norms")

UNREAD = ("embed_tokens.weight", "t2d")
"""Known, and not what SGLang drafts with."""
# vllm 0.33.0, model_executor/models/utils.py, AutoWeightsLoader: the only strangers that it does not refuse
PASSED_OVER = (".bias", "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "mask_hidden")


def wanted(s: Subject) -> set[str]:
    """Parameters that only the head's files can fill."""
    c, vllm = s.given.config, s.engine is Engine.vllm
    layers = range(c["num_hidden_layers"]) if isinstance(c.get("num_hidden_layers"), int) else range(1)
    names = {n.replace("midlayer", f"layers.{i}") for n in LAYER_TENSORS for i in layers} | {"fc.weight", "norm.weight"}
    size = c.get("draft_vocab_size")
    if size not in (None, c.get("vocab_size")):
        names.add("d2t")
    if vllm:  # further layers do without; a target's lm_head is shared if it is of the same size
        names -= {f"layers.{i}.hidden_norm.weight" for i in layers if i}
        return names | ({"lm_head.weight"} if "d2t" in names else set())
    if not c.get("tie_word_embeddings") and size is not None:
        names.add("lm_head.weight")
    if c.get("bias"):
        names.add("fc.bias")
    return names


def look(s: Subject) -> Finding:
    if not s.given.is_llama:
        raise Skipped(f"the tensors of {s.given.architecture} are not known")
    found, needed = set(s.given.headers), wanted(s)
    left = sorted(n for n in found - needed if not known(n))
    if s.engine is Engine.vllm and (refused := [n for n in left if not n.endswith(PASSED_OVER)]):
        return fail(
            f"vLLM knows no {', '.join(refused[:3])}" + (f" nor {len(refused) - 3} more" if len(refused) > 3 else ""),
            "its names, without `model.`",
            "it stops at a tensor that it has no place for: rename them, or leave them out",
        )
    if missing := sorted(needed - found):
        return fail(
            f"no {', '.join(missing)}", "a value for every parameter", "export it again from a whole run; check names"
        )
    if left:
        return warn(
            f"not read: {', '.join(left[:5])}" + (f" and {len(left) - 5} more" if len(left) > 5 else ""),
            "no tensor that is not read",
            "if training used them, the served head is another function",
        )
    return ok(f"{len(found)}, all taken")


def known(name: str) -> bool:
    """Whether it is for another check to say what an engine makes of it."""
    names = (*UNREAD, "lm_head.weight", "d2t")
    return name in names or name.startswith(("fc_norm.", "input_norm.")) or ".bias" in name
