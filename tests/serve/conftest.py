"""A target and a head as directories: tiny config files for the pure tests, real ones for the real server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle_lab.config.schema import Spec, SpecKind
from eagle_lab.serve.launch import Launch
from tests.known_acceptance import CPU, known_pair

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
}
HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 64,
    "vocab_size": 512,
    "draft_vocab_size": 100,
    "max_position_embeddings": 2048,
}
CHAIN = Spec(SpecKind.chain, num_draft_tokens=4)


def directory(path: Path, config: dict[str, Any], export: dict[str, Any] | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if export is not None:
        (path / "export.json").write_text(json.dumps(export))
    return path


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """A legal launch of a chain; its directories hold config files only."""
    return Launch(directory(tmp_path / "target", TARGET), CPU, CHAIN, directory(tmp_path / "head", HEAD))


@pytest.fixture
def plain(launch: Launch) -> Launch:
    return replace(launch, spec=Spec(), head=None)


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Real weights: next(t) = t + 1, and its exact head that lacks the tokens t % SKIP == 0."""
    root = tmp_path_factory.mktemp("known")
    target, head = known_pair(root)
    return Launch(target.path, CPU, CHAIN, head, target_digest=target.digest)
