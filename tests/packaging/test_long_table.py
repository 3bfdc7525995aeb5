"""The table of a long run is made from what pytest wrote."""

from __future__ import annotations

from pathlib import Path

from tests.long_table import table

JUNIT = """<testsuites><testsuite name="pytest" errors="0" failures="1" skipped="1" tests="4" time="1500.5"
 timestamp="2026-01-02T03:04:05.678"><testcase classname="tests.a.test_b" name="test_one" time="0.5"/>
<testcase classname="tests.a.test_b" name="test_two" time="30"><failure message="x">y</failure></testcase>
<testcase classname="tests.a.test_b" name="test_three" time="1"><skipped message="z"/></testcase>
<testcase classname="tests.c" name="test_four" time="2"><properties><property name="idle share" value="0.02"/>
</properties></testcase></testsuite></testsuites>"""


def test_counts_seconds_and_properties(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(JUNIT)
    text = table(junit)
    assert "2026-01-02T03:04, 25 minutes of two workers" in text
    assert "4 tests, 1 failed, 0 errors, 1 skipped." in text
    assert "| a.test_b | 1 | 1 | 0 | 1 | 32 |" in text
    assert "| a.test_b | test_two | failure | 30 |  |" in text
    assert "| c | test_four | passed | 2 | idle share 0.02 |" in text
    assert "test_one" not in text
