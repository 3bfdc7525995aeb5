"""The typed config tree: what is a legal value. conf/ holds the values.

One dataclass per group; the string under a field is its documentation. Rules inside one group live in its
`__post_init__`; rules between groups live in `load.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING

from eagle_lab.config.errors import LabError
from eagle_lab.config.spec import complete


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


class SourceKind(Enum):
    self_synth = "self_synth"
    """The target writes the user turn itself, from its own template prefix (Magpie, arXiv 2406.08464)."""
    jsonl = "jsonl"
    """A JSONL file of prompts or conversations."""


class RowFormat(Enum):
    auto = "auto"
    """messages, conversations or turns, whichever key the row has."""
    messages = "messages"
    """{"messages": [{"role", "content"}]}"""
    sharegpt = "sharegpt"
    """{"conversations": [{"from", "value"}]}"""
    turns = "turns"
    """{"turns": ["first user turn", "second"]}"""
    field = "field"
    """{"<field>": "user turn"}"""


@dataclass
class Source:
    """One origin of prompts."""

    kind: SourceKind = SourceKind.jsonl
    path: str | None = None
    """The JSONL file (kind jsonl)."""
    format: RowFormat = RowFormat.auto
    field: str | None = None
    """The key that holds the user turn (format field)."""
    count: int | None = None
    """Prompts taken from this source; null = all (not allowed for self_synth)."""
    temperature: float = 1.0
    """Sampling of the user turn (self_synth)."""
    top_p: float = 0.95
    max_new_tokens: int = 64
    """Longest user turn in tokens (self_synth); a turn that does not end by itself is dropped."""

    def __post_init__(self) -> None:
        if self.kind is SourceKind.jsonl and not self.path:
            raise LabError("data.sources: a jsonl source has no path. Give path=/some/file.jsonl.")
        if self.kind is SourceKind.self_synth and not self.count:
            raise LabError("data.sources: a self_synth source has no count. Say how many prompts to write, count=200.")
        if (self.format is RowFormat.field) != (self.field is not None):
            raise LabError(
                f"data.sources: format={self.format.value} with field={self.field!r}. A field name belongs to "
                "format=field and only there."
            )


@dataclass
class Answers:
    """How the target answers the prompts."""

    regenerate: bool = True
    """False trains on the answers found in the source (off-policy: acceptance is usually lower)."""
    temperature: float = 0.0
    """0 matches greedy serving."""
    top_p: float = 1.0
    max_new_tokens: int = 256
    concurrency: int = 32
    """Requests in flight."""


@dataclass
class Data:
    name: str = MISSING
    sources: list[Source] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    max_length: int = 2048
    """Longest row in tokens; longer ones are cut at the end, rows with no supervised token left are dropped."""
    holdout: float = 0.05
    """Fraction of conversations kept out of training for the proxy accept length."""
    decontaminate: list[str] = field(default_factory=lambda: ["smoke"])
    """Suites (by name or JSONL path) whose 8-grams may not occur in the prompts."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise LabError(f"data.holdout={self.holdout}: a fraction in [0, 1) is wanted.")
        if self.max_length < 8:
            raise LabError(f"data.max_length={self.max_length}: at least 8 tokens are needed.")


class DraftInit(Enum):
    target = "target"
    """lm_head rows, norms and the last decoder layer come from the target."""
    random = "random"
    """Normal(0, 0.02), norms at one: the control."""
    analytic = "analytic"
    """The exact head of target=known_acceptance."""


@dataclass
class Draft:
    """The EAGLE-3 head. Sizes default to the target's."""

    vocab_size: int = 32000
    """Draft vocabulary; larger than the target's is refused."""
    intermediate_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int | None = None
    """Positions written to the export; null = the target's. Must cover server.context_length."""
    init: DraftInit = DraftInit.target
    skip: int = 0
    """init analytic: tokens t % skip == 0 are left out of the draft vocabulary (0 = none): the head is wrong there."""


class OovPolicy(Enum):
    masked = "masked"
    """Positions whose teacher argmax is outside the draft vocab are left out (EAGLE, SpecForge)."""
    trained = "trained"
    """They are trained on the renormalised rest (speculators, ModelOpt)."""


@dataclass
class Loss:
    unroll_steps: int = 7
    """Training-time-test steps T (EAGLE-3, arXiv 2503.01840)."""
    step_decay: float = 0.8
    """Step i weighs step_decay ** i."""
    oov: OovPolicy = OovPolicy.masked

    def __post_init__(self) -> None:
        if self.unroll_steps < 1:
            raise LabError(f"loss.unroll_steps={self.unroll_steps}: at least 1 step is needed.")


@dataclass
class Optim:
    optimizer: dict[str, Any] = field(default_factory=lambda: {"_target_": "torch.optim.AdamW"})
    """`_target_` (torch.optim.*) and its arguments; lr is required."""
    warmup_fraction: float = 0.03
    """Share of all steps with a linear warm-up."""
    final_lr_fraction: float = 0.05
    """The cosine ends at this share of the peak learning rate."""
    grad_clip: float = 1.0


class Capture(Enum):
    cached = "cached"
    """Target states are computed once and kept in memory for all epochs (small data)."""
    online = "online"
    """The frozen target runs in every step."""


@dataclass
class Trainer:
    max_epochs: int = 1
    """0 exports the head as initialised."""
    max_steps: int = -1
    """Optimiser steps; -1 = as many as the epochs have."""
    batch_size: int = 8
    """Conversations per step."""
    accelerator: str = "auto"
    precision: str = "32-true"
    """Lightning precision of the head; master weights stay fp32 under bf16-mixed."""
    capture: Capture = Capture.cached
    checkpoint_every: int = 100
    """Steps between resumable checkpoints."""
    log_every: int = 10
    num_threads: int | None = None
    """Torch CPU threads; null = all cores."""
    deterministic: bool = True


class OpsImpl(Enum):
    auto = "auto"
    reference = "reference"
    triton = "triton"


@dataclass
class Ops:
    impl: OpsImpl = OpsImpl.auto
    """auto: Triton on a GPU where an op has a kernel, the PyTorch reference elsewhere."""


class SpecKind(Enum):
    none = "none"
    chain = "chain"
    tree = "tree"


@dataclass
class Spec:
    """One speculation point, in SGLang's names. Legal triples: SGLang rewrites or crashes on the others."""

    kind: SpecKind = SpecKind.none
    num_steps: int | None = None
    """Draft forward passes per round. On a chain it follows from num_draft_tokens."""
    eagle_topk: int | None = None
    """Branches kept per step; 1 on a chain."""
    num_draft_tokens: int | None = None
    """Tokens verified per round, the bonus position included."""

    def __post_init__(self) -> None:
        self.num_steps, self.eagle_topk, self.num_draft_tokens = complete(self)


class ServerKind(Enum):
    cpu = "cpu"
    """SGLang on this machine's CPU, with eagle_lab's torch operators."""
    gpu = "gpu"
    """SGLang on a GPU."""
    url = "url"
    """A server that already runs."""


@dataclass
class Server:
    kind: ServerKind = ServerKind.gpu
    url: str | None = None
    """Base URL (kind url)."""
    host: str = "127.0.0.1"
    port: int | None = None
    """null = a free port below 55536 (SGLang also takes port + 10000)."""
    dtype: str = "bfloat16"
    context_length: int = 4096
    max_running_requests: int = 16
    max_total_tokens: int | None = None
    """KV slots; null = by mem_fraction."""
    mem_fraction: float = 0.8
    tp: int = 1
    attention_backend: str = "triton"
    quantization: str | None = None
    """Of the target; the draft is always served unquantised."""
    num_threads: int | None = None
    """CPU threads of the engine (kind cpu); null = all cores."""
    start_timeout_s: float = 600.0
    request_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        if (self.kind is ServerKind.url) != (self.url is not None):
            raise LabError(
                f"server.kind={self.kind.value} with server.url={self.url!r}: use server=url "
                "server.url=http://127.0.0.1:30000 to measure a running server, or drop server.url."
            )
        if self.port is not None and not 1 <= self.port <= 55535:
            raise LabError(f"server.port={self.port}: SGLang also takes port + 10000, so 1..55535 is legal.")


@dataclass
class Suite:
    """Held-out prompts and how they are asked."""

    name: str = MISSING
    path: str | None = None
    """JSONL file; null = the suite of this name shipped with eagle_lab."""
    format: RowFormat = RowFormat.auto
    field: str | None = None
    limit: int | None = None
    """First n prompts only; null = all."""
    max_new_tokens: int = 128
    temperature: float = 0.0
    concurrency: int = 1
    """Requests in flight."""
    seed: int = 0


class TrackKind(Enum):
    none = "none"
    wandb = "wandb"


@dataclass
class Track:
    kind: TrackKind = TrackKind.wandb
    project: str = "eagle_lab"
    entity: str | None = None
    mode: str = "auto"
    """auto = online with a key (WANDB_API_KEY or ~/.netrc), offline without; or online, offline."""


@dataclass
class Paths:
    outputs: str = "outputs"
    """Everything that a run writes, relative to the current folder."""
    cache: str = MISSING
    """Converted targets and digests; shared by projects."""


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
    spec: Spec = field(default_factory=Spec)
    server: Server = field(default_factory=Server)
    suite: Suite = field(default_factory=Suite)
    track: Track = field(default_factory=Track)
    paths: Paths = field(default_factory=Paths)
    head: str | None = None
    """An exported head directory to serve, measure or check; null = the head that this config trains."""
    stay: bool = False
    """serve: keep the server up until Ctrl-C."""
    results: str | None = None
    """report: the sweep or run directory to tabulate; null = the sweep of this name."""
