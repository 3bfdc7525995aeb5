"""The few pure OmegaConf resolvers that conf/ uses."""

from __future__ import annotations

import re

from omegaconf import DictConfig, OmegaConf

from eagle_lab.config.content import NOT_CONTENT
from eagle_lab.config.digest import digest

COMMON = ("experiment", *NOT_CONTENT)


def point_slug(overrides: list[str], *, _root_: DictConfig) -> str:
    """Directory name of a sweep point: its overrides, readable, and 8 hex digits of its resolved content.

    The same content has the same name whatever the order or spelling of the overrides' digest part, so a second
    launch finds what is done.
    """
    kept = [o.lstrip("+~") for o in overrides if o.lstrip("+~").split("=")[0].split(".")[0] not in COMMON]
    leaves = sorted(f"{k.split('.')[-1].split('/')[-1]}={v}" for k, _, v in (o.partition("=") for o in kept))
    text = re.sub(r"[^A-Za-z0-9=._-]+", "_", ",".join(leaves)).strip("_")[:60] or "point"
    content = {
        k: OmegaConf.to_container(v, resolve=True) if OmegaConf.is_config(v) else v
        for k, v in ((k, _root_[k]) for k in _root_ if k not in NOT_CONTENT and not OmegaConf.is_missing(_root_, k))
    }
    return f"{text}-{digest(content)[:8]}"


def register() -> None:
    OmegaConf.register_new_resolver("point_slug", point_slug, replace=True)
