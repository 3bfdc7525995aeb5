"""`python -m tests.long_table JUNIT.xml`: what a run of `make test-long ARGS=--junitxml=JUNIT.xml` did, as Markdown."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

from eagle_lab.config.provenance import provenance

SLOW_S = 20.0


def table(junit: Path) -> str:
    """Per file how many tests ended how, and each test that took SLOW_S or has something to say."""
    (suite,) = ElementTree.parse(junit).getroot().iter("testsuite")
    files: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: Counter[str] = Counter()
    slow = []
    for case in suite.iter("testcase"):
        file, took = case.attrib["classname"].removeprefix("tests."), float(case.attrib["time"])
        ended = next((c.tag for c in case if c.tag in ("failure", "error", "skipped")), "passed")
        files[file][ended] += 1
        seconds[file] += took
        said = ", ".join(f"{p.attrib['name']} {p.attrib['value']}" for p in case.iter("property"))
        if took >= SLOW_S or said:
            slow.append((took, f"| {file} | {case.attrib['name']} | {ended} | {took:.0f} | {said} |"))
    known = provenance()
    versions = ", ".join(f"{k} {v}" for k, v in known["versions"].items() if k in ("python", "torch", "sglang"))
    ends = ("passed", "failure", "error", "skipped")
    rows = [f"| {f} | {' | '.join(str(files[f][e]) for e in ends)} | {seconds[f]:.0f} |" for f in sorted(files)]
    return "\n".join(
        [
            "# make test-long",
            "",
            f"{suite.attrib['timestamp'][:16]}, {float(suite.attrib['time']) / 60:.0f} minutes of two workers on "
            f"{os.cpu_count()} cores ({known['machine']}), {versions}, commit {str(known['git_sha'])[:12]}: "
            f"{suite.attrib['tests']} tests, {suite.attrib['failures']} failed, {suite.attrib['errors']} errors, "
            f"{suite.attrib['skipped']} skipped.",
            "",
            "| file | passed | failed | errors | skipped | seconds |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"Tests of {SLOW_S:.0f} s and more, the longest first:",
            "",
            "| file | test | ended | seconds | measured |",
            "|---|---|---|---|---|",
            *(line for _, line in sorted(slow, reverse=True)),
            "",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(table(Path(sys.argv[1])))
