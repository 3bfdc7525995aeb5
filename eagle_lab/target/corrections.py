"""The end-of-turn token and the chat template, where a model's own files are wrong or silent about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json
from eagle_lab.config.paths import expanded
from eagle_lab.config.schema import Target


def corrections(directory: Path, target: Target) -> dict[str, str]:
    """File name -> new text of every file that target.eos_token or target.chat_template changes in this directory.

    Empty when the directory already says what the config asks for. Raises LabError for a token that the tokenizer does
    not have.
    """
    changed: dict[str, Any] = {}
    if target.eos_token is not None:
        changed |= _eos(directory, target.eos_token, _required_id(directory, target))
    if target.chat_template is not None:
        template = template_text(target.chat_template)
        if template != chat_template(directory):
            tokenizer = changed.get("tokenizer_config.json", _optional(directory / "tokenizer_config.json"))
            changed["tokenizer_config.json"] = {k: v for k, v in tokenizer.items() if k != "chat_template"}
            changed["chat_template.jinja"] = template
    return {name: v if isinstance(v, str) else json.dumps(v, indent=1) + "\n" for name, v in changed.items()}


def _eos(directory: Path, token: str, token_id: int) -> dict[str, Any]:
    """Every file whose claim about the end-of-turn token differs. A list of ids that holds the right one stays."""
    changed = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        content = _optional(directory / name)
        if name == "tokenizer_config.json" or "eos_token" in content:
            wanted = {"eos_token": token} | ({"eos_token_id": token_id} if "eos_token_id" in content else {})
            if _text(content.get("eos_token")) != token or content.get("eos_token_id", token_id) != token_id:
                changed[name] = content | wanted
    for name in ("config.json", "generation_config.json"):
        content = _optional(directory / name)
        stated = _ids(content.get("eos_token_id")) or _ids((content.get("text_config") or {}).get("eos_token_id"))
        if (name == "config.json" or content) and token_id not in stated:
            changed[name] = content | {"eos_token_id": token_id}
            if content.get("text_config"):
                changed[name]["text_config"] = content["text_config"] | {"eos_token_id": token_id}
    return changed


def eos_token_ids(directory: Path) -> list[int]:
    """The ids that SGLang stops at: the tokenizer's first, then those of config.json and generation_config.json.

    Source: sglang 0.5.20, srt/configs/model_config.py and srt/managers/schedule_batch.py.
    """
    token = _text(_optional(directory / "tokenizer_config.json").get("eos_token"))
    own = token_id(directory, token) if token else None
    config = _optional(directory / "config.json")
    ids = [own] if own is not None else []
    for stated in (config, config.get("text_config") or {}, _optional(directory / "generation_config.json")):
        ids += _ids(stated.get("eos_token_id"))
    return list(dict.fromkeys(ids))


def chat_template(directory: Path) -> str | None:
    """The template that transformers would use; the file wins over the key in tokenizer_config.json."""
    file = directory / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    found = _optional(directory / "tokenizer_config.json").get("chat_template")
    return found if isinstance(found, str) else None


def template_text(value: str) -> str:
    """target.chat_template is the template itself, or the path of a .jinja file."""
    if not value.endswith(".jinja"):
        return value
    try:
        return expanded("target.chat_template", value).read_text(encoding="utf-8")
    except OSError as e:
        raise LabError(
            f"target.chat_template={value}: cannot be read ({e.strerror}). Give a readable .jinja file."
        ) from e


def token_id(directory: Path, token: str) -> int | None:
    """The id of a token by the tokenizer's files, without loading the tokenizer; None when they do not have it."""
    for number, added in _optional(directory / "tokenizer_config.json").get("added_tokens_decoder", {}).items():
        if _text(added) == token:
            return int(number)
    tokenizer = _optional(directory / "tokenizer.json")
    for added in tokenizer.get("added_tokens", []):
        if added["content"] == token:
            return int(added["id"])
    vocab = tokenizer.get("model", {}).get("vocab", {})
    return vocab.get(token) if isinstance(vocab, dict) else None


def _required_id(directory: Path, target: Target) -> int:
    assert target.eos_token is not None
    found = token_id(directory, target.eos_token)
    if found is None:
        raise LabError(
            f"target.eos_token={target.eos_token}: the tokenizer in {directory} has no such token. Give the token that "
            "ends an assistant turn in its chat template, or target.eos_token=null."
        )
    return found


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _text(token: str | dict[str, Any] | None) -> str | None:
    """Tokenizer configs write a token as its text or as an object with `content`."""
    return token["content"] if isinstance(token, dict) else token


def _ids(stated: int | list[int] | None) -> list[int]:
    if stated is None:
        return []
    return [stated] if isinstance(stated, int) else list(stated)
