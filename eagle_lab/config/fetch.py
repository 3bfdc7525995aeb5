"""Public suites and prompts are not shipped: a file is fetched once, from the address that the config names."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import httpx
from omegaconf import OmegaConf

from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import replacing
from eagle_lab.config.paths import conf_dir
from eagle_lab.config.schema import Source, Suite


# every point of a sweep is checked, and names the same few
@cache
def named(suite: str) -> Suite:
    """The suite that is given in one word: the path of its file, or the name of an option of conf/suite.

    LabError for a name that is none; whether a path has a file, its reader looks.
    """
    if suite.endswith(".jsonl") or "/" in suite:
        return Suite(name=Path(suite).stem, path=suite)
    preset = conf_dir() / "suite" / f"{suite}.yaml"
    known = sorted(file.stem for file in preset.parent.glob("*.yaml") if file.stem != "jsonl")
    if suite not in known:
        raise LabError(f"no suite {suite!r}: there are {', '.join(known)}. Give one of them, or a JSONL file's path.")
    found = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Suite), OmegaConf.load(preset)))
    assert isinstance(found, Suite)
    return found


def located(suite: Suite, kept_in: Path) -> Suite:
    """The suite with the path of its file: the one given, or kept_in/suites/NAME-DIGEST/FILE, fetched when absent.

    A suite without a source is returned as it is. LabError, with the command to run elsewhere, when the file cannot be
    fetched.
    """
    if suite.path is not None or suite.source is None:
        return suite
    folder = kept_in.expanduser() / "suites" / f"{suite.name}-{digest(suite.source)[:12]}"
    return replace(suite, path=str(_fetched(f"suite {suite.name}", "suite.path=", suite.source, folder)))


def prompts(source: Source, kept_in: Path) -> Source:
    """The source with the path of its file: the one given, or kept_in/sources/DIGEST/FILE, fetched when absent."""
    if source.url is None:
        return source
    folder = kept_in.expanduser() / "sources" / digest(source.url)[:12]
    return replace(
        source, url=None, path=str(_fetched("data.sources", "instead of the url path: ", source.url, folder))
    )


def _fetched(what: str, give: str, address: str, folder: Path) -> Path:
    """give: what to write before the name of a file that is at hand."""
    # the file keeps its name: prompts without an id are named by it, here and where the user fetches it
    name = address.partition("?")[0].rpartition("/")[2]
    if not name:
        raise LabError(f"{what}: {address} names no file. Give the URL of a JSONL file, or {give}FILE.")
    file = folder / name
    if file.exists():
        return file
    try:
        answer = httpx.get(address, follow_redirects=True, timeout=60)
        answer.raise_for_status()
        with replacing(file) as aside:
            aside.write_bytes(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as e:
        raise LabError(
            f"{what}: {address} cannot be fetched to {file} ({' '.join(str(e).split())}). Where there is a network, "
            f"run: curl -L -o {file.name} {address} - then give {give}{file.name}, or put it there."
        ) from e
    return file
