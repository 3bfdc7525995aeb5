"""The typed config tree: what is a legal value. conf/ holds the values.

One dataclass per group, in this file and its two neighbours (schema_training, schema_serving), which it re-exports;
the string under a field is its documentation. Rules inside one group live in its `__post_init__`, rules between groups
in `load.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from omegaconf import MISSING

from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import expanded
from eagle_lab.config.schema_serving import (
    Doctor,
    Engine,
    Server,
    ServerKind,
    Spec,
    SpecKind,
    Suite,
    Track,
    TrackKind,
    TrackMode,
)
from eagle_lab.config.schema_training import (
    Answers,
    BenchOps,
    Capture,
    Data,
    Draft,
    DraftInit,
    Keep,
    Loss,
    LossKind,
    OovPolicy,
    Ops,
    OpsImpl,
    Optim,
    Plan,
    RowFormat,
    Source,
    SourceKind,
    Strategy,
    TeacherMass,
    Trainer,
)

__all__ = [
    "Answers",
    "Aux",
    "AuxRule",
    "BenchOps",
    "Capture",
    "Config",
    "Data",
    "Doctor",
    "Draft",
    "DraftInit",
    "Engine",
    "Experts",
    "Keep",
    "Loss",
    "LossKind",
    "OovPolicy",
    "Ops",
    "OpsImpl",
    "Optim",
    "Paths",
    "Plan",
    "RowFormat",
    "Server",
    "ServerKind",
    "Source",
    "SourceKind",
    "Spec",
    "SpecKind",
    "Strategy",
    "Suite",
    "Target",
    "TargetFacts",
    "TargetKind",
    "TeacherMass",
    "Track",
    "TrackKind",
    "TrackMode",
    "Trainer",
]


class TargetKind(Enum):
    hf = "hf"
    """A Hugging Face directory or hub id."""
    gguf = "gguf"
    """A GGUF file inside an installed package, converted once into the cache."""
    tiny = "tiny"
    """A random Llama with a tokenizer built on the spot (tests)."""
    known_acceptance = "known_acceptance"
    """next(t) = t + 1: the analytic target whose accept length is predictable (tests)."""


@dataclass
class TargetFacts:
    """What a preset states about its model; compared with the model's own config whenever that is at hand."""

    architecture: str | None = None
    """First entry of `architectures` in the model's config.json."""
    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    intermediate_size: int | None = None
    max_position_embeddings: int | None = None


@dataclass
class Experts:
    """Weights of a mixture of experts, which do not follow from the facts; `plan` counts with them."""

    parameters: int | None = None
    """Of the whole model."""
    active_parameters: int | None = None
    """Those of its decoder layers that one token passes."""
    weight_bytes: float = 2.0
    """Of one, as it is loaded: 1 for float8."""


@dataclass
class Target:
    name: str = MISSING
    """Short name used in directories and tables."""
    kind: TargetKind = TargetKind.hf
    path: str | None = None
    """A local model directory or a hub id. Given, it wins over every other source."""
    hub_id: str | None = None
    """The model's name on the hub; used when neither `path` nor `package` gives the weights."""
    package: str | None = None
    """A pip package that carries the weights as GGUF (kind gguf)."""
    eos_token: str | None = None
    """The end-of-turn token, where the tokenizer's own claim is wrong."""
    chat_template: str | None = None
    """A Jinja template or the path of a .jinja file, where the tokenizer has none."""
    facts: TargetFacts = field(default_factory=TargetFacts)
    experts: Experts = field(default_factory=Experts)
    seed: int = 0
    """Weights of the kinds that are generated (tiny, known_acceptance)."""


class AuxRule(Enum):
    low_mid_high = "low_mid_high"
    """[2, n//2, n-3]: the paper's choice and every engine's default."""
    last_three = "last_three"
    """[n-3, n-2, n-1]: the last three that can be captured."""
    quarters = "quarters"
    """[n//4, n//2, 3n//4]: one per inner quarter boundary."""
    explicit = "explicit"
    """Exactly `layers`."""


@dataclass
class Aux:
    """Which residual streams of the target feed the draft head. Canonical id k = the stream entering layer k."""

    rule: AuxRule = AuxRule.low_mid_high
    layers: list[int] | None = None
    """Canonical ids for rule explicit; must be null otherwise."""

    def __post_init__(self) -> None:
        if (self.rule is AuxRule.explicit) != (self.layers is not None):
            raise LabError(
                f"aux.rule={self.rule.value} with aux.layers={self.layers}: layers belong to aux.rule=explicit and "
                "only there. Use aux=explicit 'aux.layers=[2,15,27]', or drop aux.layers."
            )


@dataclass
class Paths:
    outputs: str = "outputs"
    """Everything that a run writes, relative to the current folder."""
    cache: str = MISSING
    """Converted targets and digests; shared by projects. A leading ~ is the home directory."""

    def __post_init__(self) -> None:
        for key in ("outputs", "cache"):
            if not getattr(self, key):
                raise LabError(f"paths.{key} is empty. Give a directory, paths.{key}=/some/directory.")
        self.cache = str(expanded("paths.cache", self.cache))


@dataclass
class Config:
    """The whole tree. A field whose type is a dataclass is a group (a folder of conf/)."""

    name: str = MISSING
    """Name of the run or sweep; its directory under paths.outputs."""
    seed: int = 0
    target: Target = field(default_factory=Target)
    aux: Aux = field(default_factory=Aux)
    data: Data = field(default_factory=Data)
    draft: Draft = field(default_factory=Draft)
    loss: Loss = field(default_factory=Loss)
    optim: Optim = field(default_factory=Optim)
    trainer: Trainer = field(default_factory=Trainer)
    ops: Ops = field(default_factory=Ops)
    bench_ops: BenchOps = field(default_factory=BenchOps)
    plan: Plan = field(default_factory=Plan)
    doctor: Doctor = field(default_factory=Doctor)
    spec: Spec = field(default_factory=Spec)
    server: Server = field(default_factory=Server)
    suite: Suite = field(default_factory=Suite)
    track: Track = field(default_factory=Track)
    paths: Paths = field(default_factory=Paths)
    head: str | None = None
    """An exported head directory to serve, measure or check; null = the head that this config trains."""
    stay: bool = False
    """serve: keep the server up until Ctrl-C."""
    jobs: int = 1
    """Sweeps: how many points that are not timed (suite.timed=false) run side by side."""
    dry_run: bool = False
    """Sweeps: check the whole grid, print the jobs in their order, start and write nothing."""
    replan: bool = False
    """Sweeps: take a directory that was planned with other points or by other code; what is done is kept."""
    results: str | None = None
    """report: the sweep or run directory to tabulate; null = the sweep of this name. ls: the sweep to list."""
    remove: bool = False
    """gc: remove what it lists; false = only list it."""
