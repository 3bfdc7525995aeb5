"""eagle-lab gc: what may go, why, and how much that frees; remove=true removes exactly that."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.cli.listing import print_table, size
from eagle_lab.config.schema import Config
from eagle_lab.disk import inventory
from eagle_lab.disk.garbage import Item, garbage, remove
from eagle_lab.disk.references import References


def run(config: Config, out: Path) -> int:
    del out  # it makes nothing
    cache = Path(config.paths.cache)
    found = inventory.outputs(Path(config.paths.outputs))
    references = References(found)
    items = garbage(found, references, cache)
    for path in found.foreign:
        print(f"not made by eagle-lab, left alone: {path}")
    for reason in references.unknown:
        print(f"no stage counts as unused now: {reason}")
    if not items:
        print("nothing may go.")
        return 0
    rows = [[str(_within(item.path, found.root)), size(item.bytes), item.why] for item in items]
    print_table("may go", ["path", "frees", "why"], rows)
    freed = size(sum(item.bytes for item in items))
    if not config.remove:
        print(f"{len(items)} would free {freed}. Nothing was removed; add remove=true to remove exactly these.")
        return 0
    return _remove(items)


def _remove(items: list[Item]) -> int:
    gone = []
    for item in items:
        if remove(item):
            gone.append(item)
        else:
            print(f"stays, since it is gone or in use by now: {item.path}")
    print(f"removed {len(gone)} of {len(items)}, {size(sum(item.bytes for item in gone))}.")
    return 0


def _within(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path
