"""Does the server accept the drafts that our own code says it should?"""

from __future__ import annotations

from eagle_lab.config.schema import ServerKind
from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.evaluate.intervals import pooled_histogram, survival

NAME = "training equals serving"
CATCHES = (
    "A server that computes another function than was trained: our own head is run over the tokens that the server"
    " returned and predicts what each verify step accepted. Exact in float32; the first draft that differs says where."
)
REPORTS = ("SpecForge#455", "speculators#613", "BaldEagle#17", "vllm PR#14464", "vllm#9565", "sglang#32334")
NEEDS = ("head", "target", "served")
LEADS_TO = ("accept length", "break-even")

APART = 0.2
"""In bfloat16 single rounds differ; served drafts fell at most 4 % short of the replayed ones. More than replayed is as
wrong: SGLANG_SIMULATE_ACC_LEN makes acceptance up.
"""
PLACES = {
    1: "at the first draft: fc, aux states, embeddings, lm_head or the draft vocabulary",
    2: "from the second draft on: what the head feeds itself (norm_output, the hidden state, positions)",
}


def look(s: Subject) -> Finding:
    found = s.truth.replayed
    served, predicted = (pooled_histogram(getattr(r, which) for r in found) for which in ("served", "predicted"))
    if not sum(predicted):
        raise Skipped("no verify step in any answer: raise suite.max_new_tokens")
    equal = sum(r.equal for r in found)
    text = f"{equal} of {len(found)} requests equal; served {served}, replayed {predicted}"
    there, here = survival(served), survival(predicted)
    apart = abs(sum(there) - sum(here)) > APART * sum(here)
    if equal < len(found) if s.config.server.kind is ServerKind.cpu else apart:
        differing = (k for k, (a, b) in enumerate(zip(there, here, strict=False), 1) if abs(a - b) > 0.02 * b)
        place = PLACES[min(next(differing, 1), 2)]
        return fail(
            f"{text}. They part {place}",
            "the same in float32",
            "serving is at fault, not training: compare config.json and tensors with the trained head's",
        )
    return ok(text)
