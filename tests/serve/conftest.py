"""A target and a head as directories: tiny config files for the pure tests, real ones for the real server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle_lab.config.schema import Draft, DraftInit, Server, ServerKind, Spec, SpecKind, Target, TargetKind
from eagle_lab.serve.launch import Launch

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
CPU = Server(
    kind=ServerKind.cpu,
    dtype="float32",
    context_length=512,
    max_running_requests=4,
    max_total_tokens=4096,
    mem_fraction=0.1,
    attention_backend="intel_amx",
)
CHAIN = Spec(SpecKind.chain, num_draft_tokens=4)
SKIP, AUX = 5, [2, 4, 5]


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
    from safetensors.torch import load_file

    from eagle_lab.draft.known import analytic_head, kept_ids
    from eagle_lab.draft.shape import head_shape
    from eagle_lab.export.sglang import write
    from eagle_lab.target.locate import locate

    root = tmp_path_factory.mktemp("known")
    target = locate(Target(name="known", kind=TargetKind.known_acceptance), root)
    weights = load_file(target.path / "model.safetensors")
    draft = Draft(vocab_size=len(kept_ids(target.vocab_size, SKIP)), init=DraftInit.analytic, skip=SKIP)
    shape = head_shape(draft, target.config, len(AUX))
    tensors = analytic_head(weights["model.embed_tokens.weight"], weights["lm_head.weight"], shape, SKIP)
    facts = {"target_digest": target.digest, "target_architecture": target.architecture, "aux_layers": AUX}
    write(root / "head", tensors, shape, AUX, target.config, facts)
    return Launch(target.path, CPU, CHAIN, root / "head", target_digest=target.digest)
