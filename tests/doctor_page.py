"""`python -m tests.doctor_page`: writes docs/doctor.md anew from the checks and the corpus of faults."""

from __future__ import annotations

import json
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
from tests.doctor.prove import TABLE

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
    eagle-lab doctor server=url server.url=http://host:30000 target=smollm2_135m  # a server that runs, as it runs
    eagle-lab doctor experiment=demo doctor.dry_step=true              # the data, before a training: room, mask, steps

`head=` takes the export of any trainer, or a training's directory; a target that is no preset is `target=hf
target.path=/some/model`. Without it the head is the one that the server
names, or the one that this config has trained; where there is none, data and target alone are looked at, and nothing
is made to find out. Exit code 0: nothing fails; 1: something does; 2: the command is wrong; 3: the server that should
name its head does not answer. `--json` prints a list for machines, `doctor.ignore=[name]` lets a check fail. The checks
of files also run before a point is measured, those of data before training; a failure stops there. Above the table
stand the failures, most likely cause first: what another failure brings about comes after it. Five cases from the first
command to the conclusion: [doctor/](doctor/README.md).

Files are judged in seconds. A server is asked about a chain only; with SmolLM2 on two CPU cores that takes 3 to 4
minutes: two servers start, answer 8 prompts, and the head is replayed.

A head of another trainer comes without our export.json, so nobody says what it was trained with. What follows from that
alone (other rope or rms_norm_eps than the target's, ids that look like inputs', no ids at all) is then a warning, where
it is a failure for an export of ours. To see whether a warning costs anything, ask a server: `spec=chain_5`.

## Two engines

The same files are another head to another engine. The checks judge for {VERSIONS[Engine.sglang]}; with
`doctor.engine=vllm` for {VERSIONS[Engine.vllm]}, by its source: no vLLM server is started, so the checks of a server
are skipped. `doctor.views=true` adds a table of both: which fields of config.json and which tensors each one loads,
drops, defaults, overwrites or refuses, where they differ or do not take what is there. What differs most:
"""
SERVED_INTRO = (
    "## What they cost",
    "",
    "Each of SGLang's on the real CPU server, started as if nobody had looked (our launcher refuses most of them). The",
    "target and its exact head are analytic: its attention adds nothing, and fc reads the first aux state only, so",
    "that faults of attention, of the other states and of weights that are 1 anyway show no loss here, and are named",
    "all the same. The last ones are faults of the server's start.",
    "",
)
CHECKED = """
## Checks

In the order in which a fault is looked for: files, data, then, from *served as EAGLE-3* on, what a server answers. One
is started with the head, and one without, unless `server=url` names one that runs.
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
        *SERVED_INTRO,
        *served(),
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


def served() -> list[str]:
    """What each fault of SGLang's corpus did to the accept length on the real server."""
    rows = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    right = rows[0]["accept_length"]
    out = ["| fault | named first | accept length with it | without |", "|---|---|---|---|"]
    for row in rows[1:]:
        found = f"{row['accept_length']:.2f}" if row["accept_length"] else "no server starts, or it dies"
        out.append(f"| {row['fault']} | {row['named']} | {found} | {right:.2f} |")
    caught = sum(row["named"] is not None for row in rows[1:])
    return [*out, "", f"Named first: {caught} of {len(rows) - 1}. False alarms on the right head and server: 0."]


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
