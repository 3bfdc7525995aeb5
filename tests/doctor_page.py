"""`python -m tests.doctor_page`: writes docs/doctor.md anew from the checks and the corpus of faults."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from eagle_lab.doctor.registry import CHECKS
from tests.doctor.corpus import FAULTS

PAGE = Path(__file__).resolve().parents[1] / "docs/doctor.md"
INTRO = """# What doctor looks for

    eagle-lab doctor head=/some/head target=smollm2_135m               # files alone, no server: seconds
    eagle-lab doctor head=/some/head target=smollm2_135m spec=chain_5  # and served, probed, replayed draft for draft

A head by any trainer may be given. Without `head=` it is the one that the config trains. Exit code 0: nothing fails; 1:
something does; 2: the command is wrong. `--json` prints a list for machines, `doctor.ignore=[name]` lets a
check fail. The checks of files also run before a point is measured, those of data before training; a failure stops
there. Under the table stand the failures, most likely cause first: what another failure brings about comes after it.

## Checks

In the order in which a fault is looked for. With a server come *served as EAGLE-3* (algorithm, tokens and captured
width as the server itself reports them) and *training equals serving* (the head run by our own code over the tokens
that the server returned: in float32 every request's histogram must be equal).
"""


def page() -> str:
    lines = [INTRO, "| check | catches | public reports |", "|---|---|---|"]
    lines += [f"| {c.NAME} | {c.CATCHES} | {', '.join(c.REPORTS)} |" for c in CHECKS]
    many = Counter(f.check for f in FAULTS)
    lines += [
        "",
        "## Faults that are planted in the tests",
        "",
        f"{len(FAULTS)}, each made from a good head; a test asserts that the check named here comes first, and that",
        "what fails beside it follows from it. Good heads in four layouts (ours, SpecForge's, ModelOpt's, a model's",
        "part), and one in PyTorch's own files, have no failure.",
        "",
        "| check | faults | of them |",
        "|---|---|---|",
    ]
    for check in CHECKS:
        if many[check.NAME]:
            named = ", ".join(f.name for f in FAULTS if f.check == check.NAME)
            lines.append(f"| {check.NAME} | {many[check.NAME]} | {named} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
