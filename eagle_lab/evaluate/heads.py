"""The width that an exported head must be fed."""

from __future__ import annotations

from pathlib import Path

from eagle_lab.config.model_config import read_head

DEFAULT_AUX = 3
"""SGLang captures three streams when the head's config names no ids."""


def aux_width(head: Path, hidden_size: int) -> int:
    """Aux layers named by the head's config.json x the target's hidden size."""
    ids = (read_head(head).get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    return (len(ids) if ids else DEFAULT_AUX) * hidden_size
