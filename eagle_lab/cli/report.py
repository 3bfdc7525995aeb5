"""eagle-lab report: rows -> summary.csv, report.md, plots/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.schema import Config


def run(config: Config, out: Path) -> int:
    """Of `results`, or of the sweep of this config's name."""
    del out  # the report lies beside its rows
    write(Path(config.results) if config.results else Path(config.paths.outputs) / "sweeps" / config.name)
    return 0


def write(directory: Path) -> Path:
    """The report with the paired comparison of heads; returns report.md."""
    from eagle_lab.report.write import report

    def compare(a: dict[str, Any], b: dict[str, Any]) -> tuple[float, float | None, float | None]:
        # here, not above: it imports scipy.stats, and most reports compare no heads
        from eagle_lab.evaluate.intervals import accept_length_difference

        found = accept_length_difference(a["prompts"], b["prompts"])
        return found.value, found.low, found.high

    return report(directory, compare)
