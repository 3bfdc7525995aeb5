"""`python -m tests.doctor_page`: writes docs/doctor.md anew from the checks and the corpus of faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from eagle_lab.config.schema import Engine
from eagle_lab.doctor.registry import CHECKS
from eagle_lab.doctor.views import INNER_IDS, VERSIONS
from eagle_lab.doctor.vllm import OUTER_IDS
from tests.doctor.corpus import FAULTS, Fault
from tests.doctor.corpus_vllm import TAKEN, VLLM_FAULTS
from tests.doctor.layouts import LAYOUTS

PAGE = Path(__file__).resolve().parents[1] / "docs/doctor.md"
DIFFERENCES = (
    (
        "layer ids",
        f"`{INNER_IDS}`, outputs: k captures what enters layer k + 1",
        f"`{OUTER_IDS}`, inputs: k captures what enters layer k; those in eagle_config are only counted"
        " (model runner V1 reads them, as inputs)",
    ),
    ("no layer ids", "2, n / 2, n - 3 as inputs", "the same"),
    ("the head's embedding", "overwritten by the target's", "kept, unless it equals the target's"),
    ("a tensor that it has no place for", "skipped without a word", "refused (a bias is skipped)"),
    ("a parameter without a tensor", "noise", "noise; without lm_head or embedding the target's is shared"),
    ("`norm_before_residual`", "ignored", "read; in speculators' layout true where it is left out"),
    ("`draft_vocab_size` left out", "stops", "vocab_size"),
    ("d2t beside a whole vocabulary", "read", "refused"),
    ("`tie_word_embeddings`", "the embedding drafts", "ignored"),
    ("biases", "of o and fc", "of q, k, v, o (`attention_bias`) and of the MLP (`mlp_bias`)"),
    ("`dtype`", "read", "the target's"),
    ("too small `max_position_embeddings`", "garbage past it", "raised, or, where rope scales by it, shorter requests"),
    ("speculators' config.json", "refused", "read; another number of ids than 3 needs `num_aux_hidden_states`"),
)
INTRO = f"""# What doctor looks for

    eagle-lab doctor head=/some/head target=smollm2_135m               # files alone, no server: seconds
    eagle-lab doctor head=/some/head target=smollm2_135m spec=chain_5  # and served, probed, replayed draft for draft
    eagle-lab doctor head=/some/head target=smollm2_135m doctor.engine=vllm  # files alone, as vLLM loads them

A head by any trainer may be given. Without `head=` it is the one that the config trains. Exit code 0: nothing fails; 1:
something does; 2: the command is wrong. `--json` prints a list for machines, `doctor.ignore=[name]` lets a
check fail. The checks of files also run before a point is measured, those of data before training; a failure stops
there. Under the table stand the failures, most likely cause first: what another failure brings about comes after it.

## Two engines

The same files are another head to another engine. The checks judge for {VERSIONS[Engine.sglang]}; with
`doctor.engine=vllm` for {VERSIONS[Engine.vllm]}, by its source: no vLLM server is started, so the checks of a server
are skipped. `doctor.views=true` adds a table of both: which fields of config.json and which tensors each one loads,
drops, defaults, overwrites or refuses, where they differ or do not take what is there. What differs most:
"""
CHECKED = """
## Checks

In the order in which a fault is looked for. With a server come *served as EAGLE-3* (algorithm, tokens and captured
width as the server itself reports them) and *training equals serving* (the head run by our own code over the tokens
that the server returned: in float32 every request's histogram must be equal).
"""


def page() -> str:
    lines = [INTRO, f"| | {' | '.join(VERSIONS.values())} |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in DIFFERENCES]
    lines += [CHECKED, "| check | catches | public reports |", "|---|---|---|"]
    lines += [f"| {c.NAME} | {c.CATCHES} | {', '.join(c.REPORTS)} |" for c in CHECKS]
    lines += [
        "",
        "## Faults that are planted in the tests",
        "",
        f"{len(FAULTS)} for SGLang, {len(VLLM_FAULTS)} for vLLM, each made from a good head; a test asserts that the",
        "check named here comes first, and that what fails beside it follows from it.",
        "",
        *table(FAULTS),
        "",
        "For vLLM: SGLang has no failure for the same files, or cannot read their layout, or overwrites the embedding.",
        "",
        *table(VLLM_FAULTS),
        "",
        f"The other way round, SGLang fails {', '.join(TAKEN)} and a trained embedding where vLLM serves as trained.",
        "",
        "## Good heads as other trainers write them",
        "",
        f"Ours, and {len(LAYOUTS)} more, have no failure for the engine that they are written for.",
        "",
        "| layout | fields and names from | engines |",
        "|---|---|---|",
        *(f"| {x.name} | {x.source} | {', '.join(e.value for e in x.engines)} |" for x in LAYOUTS),
    ]
    return "\n".join(lines) + "\n"


def table(faults: Sequence[Fault]) -> list[str]:
    """How many faults each check is to name, and which."""
    many = Counter(f.check for f in faults)
    rows = ["| check | faults | of them |", "|---|---|---|"]
    for check in CHECKS:
        if many[check.NAME]:
            named = ", ".join(f.name for f in faults if f.check == check.NAME)
            rows.append(f"| {check.NAME} | {many[check.NAME]} | {named} |")
    return rows


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
