"""Do server and training render a conversation alike?"""

from __future__ import annotations

from eagle_lab.doctor.finding import Finding, Skipped, fail, ok
from eagle_lab.doctor.subject import Subject

NAME = "chat template"
CATCHES = (
    "A server that renders conversations by another template than the training data (one given at its start, thinking"
    " turned on or off, another tokenizer): the head then drafts after prompts that it has never seen."
)
REPORTS = ("speculators PR#346", "SpecForge#885", "SpecForge#392")
NEEDS = ("head", "target", "served")
LEADS_TO = ("accept length", "break-even")


def look(s: Subject) -> Finding:
    theirs, ours = s.server.chat, s.server.prompts[0]
    if isinstance(theirs, str):
        raise Skipped(f"the server renders no conversation: {theirs}")
    if theirs == ours:
        return ok(f"the server makes the same {len(ours)} tokens of the suite's first prompt as training")
    at = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), min(len(theirs), len(ours)))
    return fail(
        f"of the suite's first prompt the server makes {len(theirs)} tokens, training {len(ours)}; they part at token "
        f"{at + 1}: {theirs[at : at + 4]} and {ours[at : at + 4]}",
        "the same prompt",
        "give both one template: --chat-template, target.chat_template; look at the system prompt and at thinking",
    )
