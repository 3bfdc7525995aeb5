"""eagle-lab report: rows -> summary.csv, report.md, plots/."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.config.schema import Config


def run(config: Config, out: Path) -> int:
    """Of `results`, or of the sweep of this config's name."""
    del out  # the report lies beside its rows
    write(Path(config.results) if config.results else Path(config.paths.outputs) / "sweeps" / config.name)
    return 0


def write(directory: Path) -> Path:
    """Returns report.md."""
    from eagle_lab.evaluate import intervals
    from eagle_lab.report.write import report

    return report(directory, intervals)
