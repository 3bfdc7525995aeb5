"""Is the draft vocabulary's size stated, and possible?"""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok, warn
from eagle_lab.doctor.subject import Subject

NAME = "draft vocabulary"
CATCHES = (
    "draft_vocab_size left out (SGLang's class stops), larger than the vocabulary, or null (SGLang then takes the"
    " target's lm_head instead of the trained one; vLLM takes vocab_size and refuses a smaller lm_head)."
)
REPORTS = ("EAGLE#222", "SpecForge PR#602")
NEEDS = ("head",)
LEADS_TO = ("shapes", "vocabulary map", "tensors")


def look(s: Subject) -> Finding:
    c = s.given.config
    whole = c.get("vocab_size")
    if s.engine is Engine.vllm and c.get("draft_vocab_size") is None:
        return _whole_by_vllm(s)
    if "draft_vocab_size" not in c:
        return fail("no draft_vocab_size", "a whole number", "write the number of rows of lm_head")
    size = c["draft_vocab_size"]
    if size is None:
        if "lm_head.weight" in s.given.headers:
            return fail("null, and lm_head is there", "its number of rows", "write it: SGLang drops the lm_head")
        return warn("null", "a whole number", "SGLang drafts with the target's lm_head; make sure training did")
    if not isinstance(whole, int):
        raise Skipped("vocab_size is no whole number")
    if not isinstance(size, int) or not 0 < size <= whole:
        return fail(f"{size!r} of vocab_size={whole}", "a whole number, at most vocab_size", "correct config.json")
    return ok(f"{size:,} of {whole:,}")


def _whole_by_vllm(s: Subject) -> Finding:
    """vllm 0.33.0, model_executor/models/llama_eagle3.py: left out or null, it is vocab_size."""
    whole, lm_head = s.field("vocab_size"), s.given.headers.get("lm_head.weight")
    if lm_head is not None and lm_head.shape[:1] != (whole,):
        rows = f"{lm_head.shape[0]:,} rows" if lm_head.shape else "no rows"
        return fail(
            f"not said, lm_head has {rows}", f"{whole} rows", "write draft_vocab_size: vLLM refuses the lm_head"
        )
    return ok("not said: the whole vocabulary")
