"""eagle-lab ls: what lies in outputs and cache, or the points of one sweep."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from eagle_lab.cli.listing import print_table, size, when
from eagle_lab.config.schema import Config
from eagle_lab.disk import inventory
from eagle_lab.disk.progress import progress
from eagle_lab.disk.references import References, counted


def run(config: Config, out: Path) -> int:
    del out  # it only looks
    if config.results:
        _sweep(Path(config.results))
    else:
        _everything(Path(config.paths.outputs), Path(config.paths.cache))
    return 0


def _sweep(directory: Path) -> None:
    rows = [
        [p.point, p.state, p.failure, "" if p.seconds is None else f"{p.seconds:.0f}", p.at, p.error]
        for p in progress(directory)
    ]
    print_table(str(directory), ["point", "state", "failure", "seconds", "since", "error"], rows)


def _everything(root: Path, cache: Path) -> None:
    found = inventory.outputs(root)
    references = References(found)
    rows: dict[str, list[list[str]]] = {k: [] for k in (*inventory.USERS, *inventory.FILES, *inventory.CACHED)}
    sizes: Counter[str] = Counter()
    for user in found.users:
        rows[user.kind].append([user.name, user.state, size(user.bytes), when(user.written), ""])
        sizes[user.kind] += user.bytes
    for entry in [*found.stages, *inventory.cached(cache)]:
        used_by = counted(references.users[entry.path])
        rows[entry.kind].append([entry.label, entry.state, size(entry.bytes), when(entry.written), used_by])
        sizes[entry.kind] += entry.bytes
    for kind, lines in rows.items():
        if lines:
            print_table(kind, ["name", "state", "size", "made", "used by"], lines)
    for path in found.foreign:
        print(f"not made by eagle-lab: {path}")
    totals = [[kind, str(len(lines)), size(sizes[kind])] for kind, lines in rows.items() if lines]
    totals.append(["all", str(sum(map(len, rows.values()))), size(sizes.total())])
    print_table("in all", ["kind", "how many", "size"], totals)
