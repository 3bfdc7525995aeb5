"""Which ids never stand for text."""

from __future__ import annotations

from typing import Any


def special_ids(tokenizer: Any) -> set[int]:
    """Turn markers, end tokens and the like: `all_special_ids` alone knows only those that have a role."""
    added = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | set(tokenizer.all_special_ids)
