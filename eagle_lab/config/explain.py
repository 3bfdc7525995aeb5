"""Hydra's and OmegaConf's errors in our own words: what is wrong, what exists, what to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from eagle_lab.config.schema import Config, Optim

WORDS = (
    (r"^Value (.*) is not a valid bool.*", r"\1: true or false is wanted"),
    (r"^Value (.*) of type .* could not be converted to Integer", r"\1: a whole number is wanted"),
    (r"^Value (.*) of type .* could not be converted to Float", r"\1: a number is wanted"),
    (r"^[Ff]ield '(\S+)' is not Optional", "null is no value here"),
    (r"^Invalid value (.*), expected one of \[(.*)\]", r"\1: one of \2 is wanted"),
    (r"^Invalid value assigned: \w+ is not a ListConfig, list or tuple", "a list is wanted, [1,2] say"),
    (r"^Cannot find primary config '([^']*)'.*", r"-cn \1: no such config. Name its folder too: -cd sweeps -cn \1"),
)
SPEC = " Any other chain: spec=chain spec.num_draft_tokens=7. The algorithm (EAGLE3) follows from the head."
NAME_RULE = "A name takes letters a-z and A-Z, digits, '_', '.' and '-' only, no '.' or '-' first."


def explain(e: BaseException) -> str:
    """One line out of an error and its cause, without their internals."""
    texts = []
    at: BaseException | None = e
    while at is not None:
        if isinstance(at, OverrideParseException):
            return _unreadable(at.override)
        if isinstance(at, MissingConfigException) and at.options and at.missing_cfg_file:
            return _no_option(at.missing_cfg_file, list(at.options))
        if isinstance(at, ConfigKeyError | ConfigAttributeError) and is_dataclass(at.object_type):
            return _no_key(str(at.full_key), at.object_type)
        # a key appended as Hydra advises would be refused by the schema
        text = re.split(r"To append to your|Config search path:|full_key:", str(at))[0]
        text = " ".join(line.strip() for line in text.splitlines() if line.strip())
        text = _in_words(text.removeprefix("Error merging override "))
        if text and text not in texts:
            texts.append(text)
        at = at.__cause__
    return " / ".join(texts)


def _in_words(text: str) -> str:
    """OmegaConf's sentence about a value of the wrong type in ours; any other text as it is."""
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    return text


def did_you_mean(near: list[str]) -> str:
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _unreadable(override: str) -> str:
    key, equals, _ = override.partition("=")
    if not equals:
        return f"{override!r} is no KEY=VALUE. Write spec=chain_5, say."
    names = f" {NAME_RULE}" if key.split(".")[-1] == "name" else ""
    return (
        f"{override!r} cannot be read. A text with other characters than a-z, A-Z, 0-9, space and /-\\+.$%*@?|:_ "
        f"takes double quotes inside the shell's single ones: '{key}=\"...\"'.{names}"
    )


def _no_option(file: str, options: list[str]) -> str:
    group, _, option = file.rpartition("/")
    near = [f"{group}={name}" for name in get_close_matches(option, options, n=2)]
    other = SPEC if group == "spec" else ""
    listed = ", ".join(sorted(options))
    return f"{group}={option}: there is no such option.{did_you_mean(near)} {group} has: {listed}.{other}"


def _no_key(key: str, node: Any) -> str:
    place, _, leaf = key.rpartition(".")
    there = [f.name for f in fields(node)]
    near = [f"{place}.{name}" if place else name for name in get_close_matches(leaf, there)]
    if not near:  # the right name in the wrong group, or in none
        every = {k: k.rpartition(".")[2] for k in _keys(Config)}
        alike = get_close_matches(leaf, every.values(), cutoff=0.8)
        near = [k for k, name in every.items() if name in alike]
    if not near and node is Optim:  # lr, say: what the optimizer's class takes is no part of the schema
        near = [f"{place}.optimizer.{leaf}"]
    whole = "The config" if node is Config else node.__name__
    return f"there is no key {key}.{did_you_mean(near)} {place or whole} has: {', '.join(there)}."


def _keys(node: Any, place: str = "") -> Iterator[str]:
    """Dotted names of the schema's leaves."""
    for f in fields(node):
        if is_dataclass(f.default_factory):
            yield from _keys(f.default_factory, f"{place}{f.name}.")
        else:
            yield place + f.name
