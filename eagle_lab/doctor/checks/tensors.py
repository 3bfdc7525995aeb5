"""Does every parameter of SGLang's class get a value, and is every tensor taken?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, Skipped, fail, ok, warn
from eagle_lab.doctor.subject import Subject
from eagle_lab.export.head_files import ARCHITECTURE, LAYER_TENSORS

NAME = "tensors"
CATCHES = (
    "Tensors that are missing (SGLang serves noise there) or under a name that SGLang skips without a word: fc, a"
    " layer's weights, lm_head, d2t."
)
REPORTS = ("vllm#6830", "Automodel PR#2447", "verl-SpeCo PR#66", "sglang#8229")
NEEDS = ("head",)
LEADS_TO = ("shapes", "vocabulary map", "aux width", "values", "norms")

UNREAD = ("embed_tokens.weight", "t2d")
"""Known, and not what SGLang drafts with."""


def wanted(s: Subject) -> set[str]:
    """Parameters that only the head's files can fill."""
    c = s.given.config
    layers = range(c["num_hidden_layers"]) if isinstance(c.get("num_hidden_layers"), int) else range(1)
    names = {n.replace("midlayer", f"layers.{i}") for n in LAYER_TENSORS for i in layers} | {"fc.weight", "norm.weight"}
    if not c.get("tie_word_embeddings") and c.get("draft_vocab_size") is not None:
        names.add("lm_head.weight")
    if c.get("draft_vocab_size") not in (None, c.get("vocab_size")):
        names.add("d2t")
    if c.get("bias"):
        names.add("fc.bias")
    return names


def look(s: Subject) -> Finding:
    if s.given.architecture != ARCHITECTURE:
        raise Skipped(f"the tensors of {s.given.architecture} are not known")
    found, needed = set(s.given.headers), wanted(s)
    if missing := sorted(needed - found):
        return fail(
            f"no {', '.join(missing)}", "a value for every parameter", "export it again from a whole run; check names"
        )
    read = needed | set(UNREAD) | {n for n in found if n.startswith(("fc_norm.", "input_norm.")) or ".bias" in n}
    if left := sorted(found - read):
        return warn(
            f"SGLang skips {', '.join(left[:5])}" + (f" and {len(left) - 5} more" if len(left) > 5 else ""),
            "no tensor that is not read",
            "if training used them, the served head is another function",
        )
    return ok(f"{len(found)}, all taken")
