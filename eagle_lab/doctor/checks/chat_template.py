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
    if isinstance(s.server.chat, str):
        raise Skipped(f"the server renders no conversation: {s.server.chat}")
    theirs, ours = s.server.chat
    if theirs != ours:
        return fail(
            f"the server makes {theirs} tokens of the suite's first prompt, training {ours}",
            "the same prompt",
            "give both one template: --chat-template, target.chat_template; look at the system prompt and at thinking",
        )
    return ok(f"{ours} tokens, by the server and by training")
