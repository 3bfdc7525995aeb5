"""Public suites are not shipped: their file is fetched once, from the address that the suite's config names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx

from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import replacing
from eagle_lab.config.schema import Suite


def located(suite: Suite, cache: Path) -> Suite:
    """The suite with the path of its file: the one given, or cache/suites/NAME-DIGEST/FILE, fetched when absent.

    A suite without a source is returned as it is. LabError, with the command to run elsewhere, when the file cannot be
    fetched.
    """
    if suite.path is not None or suite.source is None:
        return suite
    # the file keeps its name: prompts without an id are named by it, here and where the user fetches it
    file = cache.expanduser() / "suites" / f"{suite.name}-{digest(suite.source)[:12]}" / _name(suite.source)
    if not file.exists():
        _fetch(suite, suite.source, file)
    return replace(suite, path=str(file))


def _name(source: str) -> str:
    name = source.partition("?")[0].rpartition("/")[2]
    if not name:
        raise LabError(f"suite.source={source} names no file. Give the URL of a JSONL file, or suite.path=FILE.")
    return name


def _fetch(suite: Suite, source: str, file: Path) -> None:
    try:
        answer = httpx.get(source, follow_redirects=True, timeout=60)
        answer.raise_for_status()
        with replacing(file) as aside:
            aside.write_bytes(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as e:
        raise LabError(
            f"suite {suite.name}: {source} cannot be fetched to {file} ({' '.join(str(e).split())}). Where there is a "
            f"network, run: curl -L -o {file.name} {source} - then give suite.path={file.name}, or put it there."
        ) from e
