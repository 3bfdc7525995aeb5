"""How `ls` and `gc` print: tables without frames, sizes, times."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

NUMBERS = ("size", "frees", "seconds", "how many")
PIPED_WIDTH = 10_000
"""A terminal wraps long names; a pipe gets each row on one line, for grep and awk."""


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
    for name in header:
        number = name in NUMBERS
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    console.print()


def size(number: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    return f"{number:.0f} {units[0]}" if units[0] == "B" or number >= 100 else f"{number:.1f} {units[0]}"


def when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
