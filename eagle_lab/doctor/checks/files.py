"""Are the files that the engine loads there, and whole?"""

from __future__ import annotations

from eagle_lab.config.stage import changed
from eagle_lab.doctor.finding import Finding, fail, ok, warn
from eagle_lab.doctor.subject import Subject
from eagle_lab.export.head_files import AS_EXPORTED, weight_files

NAME = "files"
CATCHES = (
    "A config.json that is none, no weights, a shard that the index names and nobody downloaded, a torn file, an export"
    " whose weights were changed afterwards (a changed config.json is a warning)."
)
REPORTS = ("SpecForge#160", "vllm#6830")
NEEDS = ("head",)
LEADS_TO = ("tensors", "shapes", "values", "vocabulary map", "aux width", "embedding", "biases", "norms")


def look(s: Subject) -> Finding:
    head = s.given
    _, _, headers = head.written, head.export, head.headers  # each is Unreadable where it is torn
    weights = [file.name for file in weight_files(head.path)]
    if edited := dict(changed(head.path)):
        name = next((n for n in edited if n in weights), next(iter(edited)))
        say = fail if name in weights else warn
        return say(f"{name}: {edited[name]}", "the files that were exported", AS_EXPORTED.format(head.path))
    return ok(f"{len(headers)} tensors in {', '.join(weights)}")
