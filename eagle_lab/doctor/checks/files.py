"""Are the files that the engine loads there, and whole?"""

from __future__ import annotations

from eagle_lab.config.errors import LabError
from eagle_lab.config.stage import finished
from eagle_lab.doctor.finding import Finding, fail, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.export.head_files import weight_files

NAME = "files"
CATCHES = "No weights, a shard that the index names and nobody downloaded, a torn file, an export edited afterwards."
REPORTS = ("SpecForge#160", "vllm#6830")
NEEDS = ("head",)
LEADS_TO = ("tensors", "shapes", "values", "vocabulary map", "aux width", "embedding", "biases", "norms")


def look(s: Subject) -> Finding:
    try:
        finished(s.given.path)
    except LabError as e:
        return fail(str(e), "the files that were exported", f"remove {s.given.path}/manifest.json to take them as is")
    headers = s.given.headers
    names = ", ".join(file.name for file in weight_files(s.given.path))
    return ok(f"{len(headers)} tensors in {names}")
