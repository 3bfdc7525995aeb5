"""Keeps the prompts of the suites out of the training prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from eagle_lab.config.digest import file_digest
from eagle_lab.config.prompts import read_conversations, suite_path
from eagle_lab.config.schema import Suite

GRAM = 8


def words(text: str) -> tuple[str, ...]:
    """Lower-cased words, punctuation and spacing left out: what counts as the same text here."""
    return tuple(re.findall(r"\w+", text.lower()))


def _grams(text: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (text[i : i + GRAM] for i in range(len(text) - GRAM + 1))


class Suites:
    """The user turns of these suites, as 8-grams of words; turns of fewer words are known as a whole."""

    def __init__(self, suites: list[Suite]) -> None:
        """suites: located ones. Raises LabError for one that cannot be read."""
        self.files = [suite_path(suite.name, suite.path) for suite in suites]
        self._known: set[tuple[str, ...]] = set()
        for file, suite in zip(self.files, suites, strict=True):
            for turn in (t for c in read_conversations(file, suite.format, suite.field) for t in c.turns):
                text = words(turn)
                self._known.update(_grams(text) if len(text) >= GRAM else [text])

    @property
    def digests(self) -> list[str]:
        """Content of the suites, whatever their names and order."""
        return sorted(file_digest(f) for f in self.files)

    def hit(self, text: str) -> bool:
        """Whether the text shares an 8-gram with a suite, or is one of its shorter turns."""
        found = words(text)
        return found in self._known or any(gram in self._known for gram in _grams(found))
