"""The names of sweep points: the same content has the same name, other content has another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from omegaconf import DictConfig

from eagle_lab.config.resolvers import point_slug

Composed = Callable[..., DictConfig]


@pytest.fixture
def slug(composed: Composed) -> Callable[..., str]:
    return lambda *overrides: point_slug(list(overrides), _root_=composed("run", *overrides))


def test_readable_and_safe(slug: Callable[..., str]) -> None:
    name = slug("spec=chain_5", "optim.optimizer.lr=1e-3", "aux=explicit", "aux.layers=[2,15,27]")
    assert name.startswith("aux=explicit_layers=_2_15_27_lr=1e-3_spec=chain_5-")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=._-")


def test_order_does_not_matter(slug: Callable[..., str]) -> None:
    assert slug("spec=chain_5", "seed=1") == slug("seed=1", "spec=chain_5")


@pytest.mark.parametrize("override", ["name=other", "track=none", "paths.outputs=/elsewhere", "paths.cache=/c"])
def test_names_and_places_are_no_content(slug: Callable[..., str], override: str) -> None:
    assert slug("seed=1", override) == slug("seed=1")


@pytest.mark.parametrize("override", ["seed=2", "spec=chain_5", "head=/heads/a", "target.facts.hidden_size=1"])
def test_content_changes_the_digest(slug: Callable[..., str], override: str) -> None:
    assert slug(override).rsplit("-", 1)[1] != slug().rsplit("-", 1)[1]


def test_spelling_does_not_change_the_digest(slug: Callable[..., str]) -> None:
    other = slug("spec=chain", "spec.num_draft_tokens=5")
    assert other.rsplit("-", 1)[1] == slug("spec=chain_5").rsplit("-", 1)[1]
    assert slug().startswith("point-")


def test_long_names_stay_usable(slug: Callable[..., str]) -> None:
    assert len(slug(f"head=/{'x' * 500}")) <= 70
    assert slug(f"head=/{'x' * 500}") != slug(f"head=/{'x' * 501}")
