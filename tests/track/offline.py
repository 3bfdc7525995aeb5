"""Reads the runs that W&B has recorded offline. Format: LevelDB's log, of wandb's protobuf records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 32768
FILE_HEADER = 7
FULL, LAST = 1, 4
"""The kinds of chunk that end a record."""


@dataclass
class OfflineRun:
    directory: Path
    id: str = ""
    name: str = ""
    group: str = ""
    job_type: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    """What was logged, with the step as _step."""
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None
    """None: the run was not finished."""


def offline_runs(folder: Path) -> list[OfflineRun]:
    """All runs below `folder`, by directory and start."""
    return [read_run(file) for file in sorted(folder.rglob("offline-run-*/run-*.wandb"))]


def read_run(file: Path) -> OfflineRun:
    run = OfflineRun(file.parent)
    for record in records(file.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.id, run.name = record.run.run_id, record.run.display_name
            run.group, run.job_type = record.run.run_group, record.run.job_type
            run.config |= ours(items(record.run.config.update))
        elif kind == "config":
            run.config |= ours(items(record.config.update))
        elif kind == "summary":
            run.summary |= ours(items(record.summary.update))
        elif kind == "history":
            found = items(record.history.item)
            run.history.append({"_step": found["_step"], **ours(found)})
        elif kind == "artifact":
            run.artifacts.append(artifact(record.artifact))
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def artifact(record: Any) -> dict[str, Any]:
    return {
        "type": record.type,
        "name": record.name,
        "aliases": sorted(record.aliases),
        "metadata": json.loads(record.metadata),
        "files": {entry.path: entry.local_path for entry in record.manifest.contents},
    }


def items(updates: Any) -> dict[str, Any]:
    """A key with a slash comes as one key or as a path of one."""
    return {".".join(u.nested_key) or u.key: json.loads(u.value_json) for u in updates}


def ours(values: dict[str, Any]) -> dict[str, Any]:
    """Without what W&B adds on its own account (_step, _runtime, _wandb)."""
    return {k: v for k, v in values.items() if not k.startswith("_")}


def records(data: bytes) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    assert data[:4] == b":W&B"
    at, whole = FILE_HEADER, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:  # too short for another chunk: filled with zeros
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (FULL, LAST):
            record = Record()
            record.ParseFromString(whole)
            whole = b""
            yield record
