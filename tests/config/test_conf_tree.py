"""Every shipped YAML composes and is legal, and conf/ and the schema are the same tree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from eagle_lab.cli.app import VERBS
from eagle_lab.config import load
from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import conf_dir
from eagle_lab.config.schema import Config

CONF = conf_dir()
FILES = sorted(CONF.rglob("*.yaml"))
OPTIONS = [f"{f.parent.name}={f.stem}" for f in FILES if f.parent != CONF]
SWEEPS = sorted((CONF.parent / "sweeps").glob("*.yaml"))
# options that ask for a value, or for a head or server that fits
WITH = {
    "aux=explicit": ["aux.layers=[2,15,27]"],
    "data=jsonl": ["data.sources=[{path: prompts.jsonl}]"],
    "server=url": ["server.url=http://127.0.0.1:30000"],
    "spec=chain": ["spec.num_draft_tokens=5"],
    "spec=tree": ["spec.num_steps=3", "spec.eagle_topk=4", "spec.num_draft_tokens=12"],
    "suite=jsonl": ["suite.name=mine", "suite.path=mine.jsonl"],
    "target=hf": ["target.path=/models/mine"],
    "target=known_acceptance": ["draft=known_acceptance"],
    "target=tiny": ["draft.vocab_size=256"],
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that WITH names."""
    monkeypatch.chdir(tmp_path)
    for name in ("prompts.jsonl", "mine.jsonl"):
        (tmp_path / name).touch()


def test_how_many_there_are() -> None:
    """A config test that counts nothing may test nothing. Raise the number with the file that you add."""
    assert len(FILES) == 74
    assert len({f.stem for f in FILES if f.parent == CONF}) == len(VERBS) + 1


def test_a_primary_config_per_verb() -> None:
    assert {f.stem for f in CONF.glob("*.yaml")} == {*VERBS, "base"}


def test_folders_are_the_groups_of_the_schema_both_ways() -> None:
    groups = {f.name for f in fields(Config) if is_dataclass(f.default_factory)}
    assert {d.name for d in CONF.iterdir() if d.is_dir()} - {"experiment"} == groups


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_composes(composed: Callable[..., DictConfig], verb: str) -> None:
    config = load.load(composed(verb))
    assert config.name == verb


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes(composed: Callable[..., DictConfig], option: str) -> None:
    load.load(composed("run", option, *WITH.get(option, [])))


@pytest.mark.parametrize("option", sorted(WITH))
def test_what_an_option_asks_for_is_refused_when_absent(composed: Callable[..., DictConfig], option: str) -> None:
    if option == "target=known_acceptance":
        pytest.skip("refused for its vocabulary, as target=tiny is")
    assert option in OPTIONS
    with pytest.raises(LabError):
        load.load(composed("run", option))


# sweep file -> (jobs, points), baselines that nobody asked for included
GRIDS = {
    "aux_layers": (4, 4),
    "concurrency": (5, 25),
    "data_size": (6, 6),
    "draft_tokens": (11, 11),
    "draft_vocab": (5, 5),
    "kimi_draft_tokens": (3, 3),
    "loss": (5, 5),
    "temperature": (3, 9),
    "unroll_length": (5, 5),
}


def test_every_sweep_has_its_grid_here() -> None:
    assert {f.stem for f in SWEEPS} == GRIDS.keys()


@pytest.mark.parametrize("file", SWEEPS, ids=lambda f: f.stem)
def test_every_sweep_is_legal_as_a_whole(file: Path, tmp_path: Path) -> None:
    """By the command that its users type, up to where the first job would start."""
    argv = ["run", "-cd", str(file.parent), "-cn", file.stem, f"paths.outputs={tmp_path / 'outputs'}", "dry_run=true"]
    done = subprocess.run(
        [sys.executable, "-m", "eagle_lab", *argv], capture_output=True, text=True, timeout=120, cwd=CONF.parent
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert (sum(line.startswith("job ") for line in lines), sum(line.startswith("  ") for line in lines)) == GRIDS[
        file.stem
    ]
    assert not any(path.is_file() for path in (tmp_path / "outputs").rglob("*")), "nothing is written"


@pytest.mark.parametrize("file", [f for f in FILES if f.parent != CONF], ids=lambda f: f"{f.parent.name}={f.stem}")
def test_a_group_file_is_one_node_of_the_schema(file: Path) -> None:
    """Merged into its dataclass alone: a key of another group in it would be refused."""
    if file.parent.name == "experiment":
        pytest.skip("experiments are about the whole tree")
    node = {f.name: f.default_factory for f in fields(Config)}[file.parent.name]
    OmegaConf.merge(OmegaConf.structured(node), OmegaConf.load(file))
