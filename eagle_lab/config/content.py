"""Which part of a config decides numbers, and the digest of it."""

from __future__ import annotations

from typing import Any

from eagle_lab.config.digest import digest, plain

# they name or place a run and change none of its numbers
NOT_CONTENT = ("name", "track", "paths", "hydra", "stay", "results")


def content_digest(verb: str, config: Any) -> str:
    """Digest of the verb and the config without names and places."""
    content = {k: v for k, v in plain(config).items() if k not in NOT_CONTENT}
    return digest({"verb": verb, "config": content})
