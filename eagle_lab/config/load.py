"""The only door from Hydra's DictConfig to the typed Config, and the rules that span groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from eagle_lab.config import aux_layers
from eagle_lab.config.errors import LabError
from eagle_lab.config.explain import NAME_RULE, explain
from eagle_lab.config.fetch import named
from eagle_lab.config.files import write_text
from eagle_lab.config.paths import head_directory
from eagle_lab.config.prompts import source_file, suite_path
from eagle_lab.config.schema import Config, Keep, OpsImpl, ServerKind, SpecKind, TargetKind


def register() -> None:
    """Makes the schema known to Hydra under the name that conf/base.yaml starts from."""
    schema = OmegaConf.structured(Config)
    # its keys are those of the chosen optimiser: optim.optimizer.eps=1e-6 must need no + in front
    OmegaConf.set_struct(schema.optim.optimizer, False)
    ConfigStore.instance().store(name="schema", node=schema)


def load(cfg: DictConfig | dict[str, Any]) -> Config:
    """Typed, complete and legal, or a LabError that names the key, the value and the fix.

    The container is merged into the schema once more, since `+key=value` passes Hydra's own struct check.
    """
    try:
        raw = OmegaConf.to_container(cfg, resolve=True) if isinstance(cfg, DictConfig) else dict(cfg)
        assert isinstance(raw, dict)
        raw.pop("hydra", None)
        merged = OmegaConf.merge(OmegaConf.structured(Config), raw)
    except OmegaConfBaseException as e:
        raise LabError(f"config: {explain(e).rstrip('.')}. `eagle-lab VERB --cfg job` prints what is composed.") from e
    # both: merge keeps a default where the file says ???, so only the raw tree shows those
    missing = sorted(OmegaConf.missing_keys(merged) | OmegaConf.missing_keys(OmegaConf.create(raw)))
    if missing:
        raise LabError(f"config: no value for {', '.join(missing)}. Give it on the command line: {missing[0]}=...")
    try:
        config = OmegaConf.to_object(merged)
    except LabError as e:
        # omegaconf appends its own "full_key: ... object_type=..." to the message of a rule in __post_init__
        raise LabError(str(e).split("\n    full_key")[0]) from e
    assert isinstance(config, Config)
    check(config)
    return config


def load_file(path: Path) -> Config:
    loaded = OmegaConf.load(path)
    assert isinstance(loaded, DictConfig)
    return load(loaded)


def dump(config: Config, path: Path) -> None:
    """Writes the resolved config; `load_file` reads it back equal."""
    write_text(path, OmegaConf.to_yaml(OmegaConf.structured(config)))


def check(c: Config) -> None:
    """Rules between groups that need no model at hand."""
    facts, server, spec = c.target.facts, c.server, c.spec
    for key, value in {"name": c.name, "target.name": c.target.name, "data.name": c.data.name}.items():
        if not re.fullmatch(r"\w[\w.-]*", value, re.ASCII):
            raise LabError(f"{key}={value!r} names a directory. {NAME_RULE}")
    if not c.data.sources:
        raise LabError(
            "data.sources is empty: there is nothing to train on. Choose data=self_synth, or give files: data=jsonl "
            "'data.sources=[{path: FILE.jsonl}]'."
        )
    _files(c)
    if c.target.kind is TargetKind.hf and not (c.target.path or c.target.hub_id):
        raise LabError("target: neither a path nor a hub id. Use target=hf target.path=/models/mine (or org/name).")
    if facts.vocab_size is not None and c.draft.vocab_size > facts.vocab_size:
        raise LabError(
            f"draft.vocab_size={c.draft.vocab_size} is larger than the vocabulary of target {c.target.name} "
            f"({facts.vocab_size}). Set draft.vocab_size to at most {facts.vocab_size}."
        )
    if facts.num_hidden_layers is not None:
        aux_layers.resolve(c.aux, facts.num_hidden_layers)
    positions = c.draft.max_position_embeddings or facts.max_position_embeddings
    if positions is not None and spec.kind is not SpecKind.none and positions < server.context_length:
        raise LabError(
            f"draft positions {positions} are below server.context_length={server.context_length}: past that point "
            f"drafts are garbage or the server dies. Set server.context_length={positions}, or raise "
            "draft.max_position_embeddings."
        )
    if server.kind is ServerKind.cpu and spec.kind is not SpecKind.none and c.suite.temperature > 0:
        raise LabError(
            f"suite.temperature={c.suite.temperature} with server=cpu: SGLang verifies greedily on a CPU, so nothing "
            "above 0 can be measured there. Set suite.temperature=0 or use server=gpu."
        )
    if server.kind is not ServerKind.url and c.suite.concurrency > server.max_running_requests:
        raise LabError(
            f"suite.concurrency={c.suite.concurrency} is above server.max_running_requests="
            f"{server.max_running_requests}: requests would queue and every time would be wrong. Raise the second."
        )
    if c.jobs < 1:
        raise LabError(f"jobs={c.jobs}: at least 1 is wanted.")
    if c.jobs > 1 and server.kind is ServerKind.gpu and server.max_total_tokens is None:
        raise LabError(
            f"jobs={c.jobs} with server.max_total_tokens=null: the first server would take the GPU's whole memory. "
            "State how many KV slots each one gets, for example server.max_total_tokens=65536."
        )
    rows = server.max_running_requests * (spec.eagle_topk or 1) * server.context_length
    if rows >= 2**31:
        raise LabError(
            f"max_running_requests x eagle_topk x context_length = {rows}: SGLang asserts that it is below 2**31. "
            "Lower server.max_running_requests or server.context_length."
        )
    if not c.data.holdout and (c.trainer.keep is Keep.best or c.trainer.patience is not None):
        raise LabError(
            f"trainer.keep={c.trainer.keep.value}, trainer.patience={c.trainer.patience} with data.holdout=0: nothing "
            "is held out to choose by. Set data.holdout=0.05, or keep=last and patience=null."
        )
    if c.ops.impl is OpsImpl.triton and c.trainer.accelerator == "cpu":
        raise LabError("ops=triton with trainer.accelerator=cpu: Triton kernels need a GPU. Use ops=auto.")


def _files(c: Config) -> None:
    """Every file that the config names is there: the suite's would be missed after the training only."""
    for key, head in (("head", c.head), ("draft.init_head", c.draft.init_head)):
        if head is not None:
            head_directory(key, head)
    for suite in (c.suite, *map(named, c.data.decontaminate)):
        if suite.path or not suite.source:
            suite_path(suite.name, suite.path)
    for source in c.data.sources:
        if source.path is not None:
            source_file(source.path)


__all__ = ["check", "dump", "load", "load_file", "register"]
