"""status.json on a disk that takes nothing more."""

from __future__ import annotations

import errno
import os

import pytest

from eagle_lab.sweep import status as module
from eagle_lab.sweep.status import set_status, status


def test_a_full_disk_still_takes_why_a_point_failed(tmp_path, monkeypatch):
    set_status(tmp_path, "planned", verb="bench", digest="d", attempts=2)

    def full(path, value):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(module, "write_json", full)
    file = tmp_path / "status.json"
    inode = file.stat().st_ino
    set_status(tmp_path, "failed", kind="disk full", error="\u00e9" * 10_000, traceback="long")
    found = status(tmp_path)
    assert (found["state"], found["kind"], found["verb"], found["attempts"]) == ("failed", "disk full", "bench", 2)
    assert found["error"] == "\u00e9" * 500
    assert "traceback" not in found
    assert file.stat().st_ino == inode, "a new file would need a block of its own"
    assert file.stat().st_size < 4096
    set_status(tmp_path, "running")
    assert set(status(tmp_path)) == {"state", "at", "verb", "digest", "attempts"}, "what is shorter leaves no rest"


def test_another_error_is_not_swallowed(tmp_path, monkeypatch):
    set_status(tmp_path, "planned")
    monkeypatch.setattr(module, "write_json", lambda path, value: os.open(tmp_path / "none" / "x", os.O_RDONLY))
    with pytest.raises(FileNotFoundError):
        set_status(tmp_path, "running")
