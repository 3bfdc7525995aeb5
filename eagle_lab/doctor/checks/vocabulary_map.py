"""Does d2t say which token each row of lm_head is?"""

from __future__ import annotations

import torch

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "vocabulary map"
CATCHES = (
    "d2t that holds absolute ids instead of offsets, is all zero, leaves the vocabulary, has a token twice, "
    "or names other tokens than t2d, as a map of another training does. vLLM: d2t beside a whole vocabulary."
)
REPORTS = ("SpecForge PR#534", "SpecForge#300", "speculators PR#1081", "verl-SpeCo PR#66", "EAGLE#222")
NEEDS = ("head",)
LEADS_TO = ("end of turn",)


def look(s: Subject) -> Finding:
    head, c = s.given, s.given.config
    size, whole = c.get("draft_vocab_size"), c.get("vocab_size")
    if "d2t" not in head.headers:
        if size in (None, whole):
            raise Skipped("the draft vocabulary is the whole one")
        return fail("no d2t", "offsets of every draft id", "export it again: draft ids would pass for target ids")
    if s.engine is Engine.vllm and size in (None, whole):
        # vllm 0.33.0, model_executor/models/llama_eagle3.py: no draft_id_to_target_id then, and a stranger is refused
        return fail("d2t beside a whole vocabulary", "none", "vLLM stops at it: leave d2t out of the tensors")
    if head.headers["d2t"].dtype not in ("I64", "I32", "torch.int64", "torch.int32"):
        return fail(f"d2t is {head.headers['d2t'].dtype}", "int64", "store it as int64")
    if not isinstance(whole, int):
        raise Skipped("config.json has no vocab_size")
    d2t = head.tensor("d2t").long()
    ids = d2t + torch.arange(len(d2t))
    if len(d2t) > 1 and not bool(d2t.any()) and size != whole:
        t2d = head.tensor("t2d").bool() if "t2d" in head.headers else None
        if t2d is None or not bool(t2d[: len(d2t)].all()):
            return fail("all offsets are zero", "offsets", "the first ids only would be drafted: export it again")
    if bool((d2t[1:] > d2t[:-1]).all()) and len(d2t) > 1 and int(d2t[-1]) < whole and int(ids.max()) >= whole:
        return fail("d2t holds token ids", "offsets, id - row", "subtract arange: both engines add it")
    if not (int(ids.min()) >= 0 and int(ids.max()) < whole):
        return fail(f"ids from {int(ids.min())} to {int(ids.max())}", f"0 to {whole - 1}", "write offsets, id - row")
    if len(ids.unique()) < len(ids):
        return fail("a token twice", "each token once", "rebuild the map with the rows of lm_head")
    if "t2d" in head.headers:
        named = head.tensor("t2d").bool().nonzero().flatten()
        if not torch.equal(named, ids.sort().values):
            fix = (
                "take both from the checkpoint that lm_head comes from; engines go by d2t, and "
                f"doctor.ignore='[{NAME}]' spec=chain_5 lets a server tell whether it is lm_head's"
            )
            return fail(f"t2d names {len(named)} tokens, d2t others", "the same", fix)
    return ok(f"{len(ids):,} ids, each once" + (", those of t2d" if "t2d" in head.headers else ""))
