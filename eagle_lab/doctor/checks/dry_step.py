"""Do some real steps at full length run?"""

from __future__ import annotations

import tempfile
from pathlib import Path

from eagle_lab.doctor.finding import Finding, Skipped, ok
from eagle_lab.doctor.subject import Subject
from eagle_lab.plan.work import measured, work_of

NAME = "dry step"
CATCHES = "What only shows when the largest step runs: memory that is not there, a kernel that does not compile."
REPORTS = ("SpecForge#466", "SpecForge PR#528", "SpecForge#577")
NEEDS = ("dataset", "target")
LEADS_TO = ()


def look(s: Subject) -> Finding:
    if not s.config.doctor.dry_step:
        raise Skipped("doctor.dry_step=true makes some")
    with tempfile.TemporaryDirectory() as folder:
        return ok(measured(s.config, s.its_target, work_of(s.config, s.tokens), Path(folder)))
