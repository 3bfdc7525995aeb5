"""The door from DictConfig to Config: what dies there, and with which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf import DictConfig

from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config, SpecKind, TargetKind

Composed = Callable[..., DictConfig]


def test_the_default_config_is_legal_and_typed(composed: Composed) -> None:
    config = load.load(composed("run"))
    assert isinstance(config, Config)
    assert config.target.kind is TargetKind.gguf
    assert config.spec.kind is SpecKind.none
    assert config.target.facts.num_hidden_layers == 30


def test_dump_and_load_file_are_inverse(composed: Composed, tmp_path: Path) -> None:
    config = load.load(composed("run", "spec=tree_12", "aux=explicit", "aux.layers=[2,9,20]", "name=x"))
    load.dump(config, tmp_path / "config.yaml")
    assert asdict(load.load_file(tmp_path / "config.yaml")) == asdict(config)


def test_a_typo_dies_in_hydra(composed: Composed) -> None:
    with pytest.raises(HydraException, match="lerning_rate"):
        composed("run", "optim.lerning_rate=1")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+optim.lerning_rate=1"], "lerning_rate"),
        (["+nonsense=1"], "nonsense"),
        (["+target.facts.layers=1"], "layers"),
        (["+trainer.max_steps.x=1"], "max_steps"),
    ],
)
def test_keys_added_with_plus_die_too(composed: Composed, overrides: list[str], message: str) -> None:
    """In Hydra itself or in load, whichever sees it first; both are the user's error."""
    with pytest.raises((LabError, HydraException), match=message):
        load.load(composed("run", *overrides))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"name": "x", "nonsense": 1}, "nonsense"),
        ({"name": "x", "trainer": {"max_steps": "many"}}, "many.*whole number"),
        ({"name": "x", "spec": {"kind": "bush"}}, r"bush.*none, chain, tree"),
        ({"name": "x", "data": {"sources": [{"path": "a", "fromat": "auto"}]}}, "fromat"),
        ({"name": "???"}, "no value for"),
    ],
)
def test_wrong_values_are_named(raw: dict, message: str) -> None:
    with pytest.raises(LabError, match=message) as e:
        load.load(raw)
    assert "object_type" not in str(e.value)
    assert "\n" not in str(e.value)


def test_missing_values_say_what_to_type(composed: Composed) -> None:
    with pytest.raises(LabError, match=r"no value for suite\.name.*suite\.name=\.\.\."):
        load.load(composed("run", "suite=jsonl"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.sources=[]"], r"data\.sources is empty"),
        (["data=jsonl"], r"data\.sources"),
        (["target=hf"], "neither a path nor a hub id"),
        (["target=tiny"], r"draft\.vocab_size=32000 is larger.*512"),
        (["target.facts.num_hidden_layers=6"], "on a target of 6 layers"),
        (["aux=explicit"], r"aux\.layers=None"),
        (["spec=chain"], r"spec\.num_draft_tokens"),
        (["spec=chain_5", "draft.max_position_embeddings=2048"], r"2048 are below server\.context_length=4096"),
        (["spec=chain_5", "server=cpu", "suite.temperature=0.7"], "verifies greedily on a CPU"),
        (["suite.concurrency=17"], r"concurrency=17 is above server\.max_running_requests=16"),
        (["server.max_running_requests=1000000"], r"below 2\*\*31"),
        (["server=url"], r"server\.url=None"),
        (["server.url=http://127.0.0.1:1"], "server.kind=gpu with"),
        (["server.port=60000"], r"1\.\.55535"),
        (["ops=triton", "trainer.accelerator=cpu"], "ops=auto"),
        (["data.max_length=4"], "at least 8"),
        (["data.holdout=1.5"], r"data\.holdout=1\.5"),
        (["loss.unroll_steps=0"], r"loss\.unroll_steps=0"),
        (["data.sources=[{kind: self_synth}]"], "no count"),
        (["data.sources=[{kind: jsonl}]"], "jsonl source with path=None, url=None. Give one of them"),
        (["data.sources=[{path: a, format: field}]"], "field=None"),
    ],
)
def test_rules_between_values(composed: Composed, overrides: list[str], message: str) -> None:
    with pytest.raises(LabError, match=message):
        load.load(composed("run", *overrides))


def test_temperature_is_fine_where_nothing_is_drafted(composed: Composed) -> None:
    load.load(composed("run", "server=cpu", "suite.temperature=0.7"))


def test_url_servers_are_not_bounded_by_our_requests(composed: Composed) -> None:
    load.load(composed("run", "server=url", "server.url=http://127.0.0.1:1", "suite.concurrency=64"))
