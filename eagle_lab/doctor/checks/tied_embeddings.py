"""Tied, SGLang drafts with the embeddings."""

from __future__ import annotations

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "tied embeddings"
CATCHES = (
    "tie_word_embeddings true, or left out (transformers' default for a Llama is false, for others true): SGLang "
    "takes the embeddings for lm_head."
)
REPORTS = ("SpecForge#139",)
NEEDS = ("head",)
LEADS_TO = ("tensors", "shapes")


def look(s: Subject) -> Finding:
    if s.engine is Engine.vllm:
        raise Skipped("vLLM does not read it: lm_head is loaded, or the target's is shared where there is none")
    found = s.field("tie_word_embeddings")
    if found:
        return fail("true", "false", "set tie_word_embeddings to false: the trained lm_head is dropped without a word")
    return ok("false" if found is False else "not said; false for a Llama")
