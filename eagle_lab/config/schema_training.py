"""The groups that decide what is trained: data, draft, loss, optim, trainer, ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING

from eagle_lab.config.errors import LabError
from eagle_lab.config.gpus import GPUS, gpu_named


def at_least(group: str, config: Any, **lowest: float) -> None:
    """Raises LabError for a field below its lowest legal value; null fields pass."""
    for key, low in lowest.items():
        value = getattr(config, key)
        if value is not None and not value >= low:
            raise LabError(f"{group}.{key}={value}: at least {low:g} is needed.")


def one_of(group: str, config: Any, **legal: tuple[str, ...]) -> None:
    """Raises LabError for a field that is none of its legal values."""
    for key, values in legal.items():
        if (value := getattr(config, key)) not in values:
            raise LabError(f"{group}.{key}={value}: one of {', '.join(values)} is wanted.")


class SourceKind(Enum):
    self_synth = "self_synth"
    """The target writes the user turn itself, from its own template prefix (Magpie, arXiv 2406.08464)."""
    jsonl = "jsonl"
    """A JSONL file of prompts or conversations."""


class RowFormat(Enum):
    auto = "auto"
    """messages, conversations or turns, whichever key the row has; a suite's `field` where it has none of them."""
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
    url: str | None = None
    """Its public address instead; fetched once into paths.cache."""
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
        if self.kind is SourceKind.jsonl and bool(self.path) == bool(self.url):
            raise LabError(
                f"data.sources: a jsonl source with path={self.path}, url={self.url}. Give one of them, "
                "path=/some/file.jsonl say."
            )
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

    def __post_init__(self) -> None:
        at_least("data.answers", self, temperature=0, max_new_tokens=1, concurrency=1)


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
    head = "head"
    """Goes on from the exported head in `init_head`, with its vocabulary map."""


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
    init_head: str | None = None
    """Directory of the exported head that init=head goes on from; `vocab_size` is then that of its map."""
    fc_norm: bool = False
    """EAGLE-3.1: norms each aux state before fc, so that the deepest, with the largest values, drowns no other."""
    norm_output: bool = False
    """EAGLE-3.1: hands the normed hidden state on to the next draft step."""
    freeze_lm_head: bool = False
    """Keep lm_head as initialised: with init=target and little data its rows are better than what can be learned."""
    skip: int = 0
    """init analytic: tokens t % skip == 0 are left out of the draft vocabulary (0 = none): the head is wrong there."""

    def __post_init__(self) -> None:
        at_least("draft", self, vocab_size=1, intermediate_size=1, num_attention_heads=1, head_dim=2, skip=0)
        if self.head_dim is not None and self.head_dim % 2:
            raise LabError(f"draft.head_dim={self.head_dim}: rotary embeddings need an even number.")
        if self.init is DraftInit.analytic and (self.fc_norm or self.norm_output):
            raise LabError("draft.init=analytic: that head has neither fc_norm nor norm_output. Drop both.")
        if (self.init is DraftInit.head) != (self.init_head is not None):
            raise LabError(
                f"draft.init={self.init.value} with draft.init_head={self.init_head}: init=head and the directory of "
                "an exported head in init_head belong together."
            )


class OovPolicy(Enum):
    masked = "masked"
    """Positions whose teacher argmax is outside the draft vocab are left out (EAGLE, SpecForge)."""
    trained = "trained"
    """They are trained on the renormalised rest (speculators, ModelOpt)."""


class LossKind(Enum):
    soft_ce = "soft_ce"
    """Cross-entropy against the teacher's distribution (EAGLE-3)."""
    kl = "kl"
    """The same less the teacher's entropy: equal gradient, zero when the head is right."""
    lk_alpha = "lk_alpha"
    """-log acceptance."""
    lk_lambda = "lk_lambda"
    """w KL + (1 - w)(1 - acceptance), w = kl_scale exp(-kl_decay acceptance)."""
    hard = "hard"
    """Cross-entropy against the teacher's best draft token."""


class TeacherMass(Enum):
    renormalised = "renormalised"
    """The teacher's distribution is renormalised on the draft vocab."""
    charged = "charged"
    """It is not: what it holds outside can never be accepted, and rows with much outside count less."""


@dataclass
class Loss:
    kind: LossKind = LossKind.soft_ce
    teacher: TeacherMass = TeacherMass.renormalised
    kl_scale: float = 1.0
    """Of lk_lambda."""
    kl_decay: float = 3.0
    """Of lk_lambda."""
    unroll_steps: int = 7
    """Training-time-test steps T (EAGLE-3, arXiv 2503.01840)."""
    step_decay: float = 0.8
    """Step i weighs step_decay ** i."""
    oov: OovPolicy = OovPolicy.masked

    def __post_init__(self) -> None:
        at_least("loss", self, unroll_steps=1, kl_decay=0)
        if not 0 <= self.kl_scale <= 1:
            raise LabError(f"loss.kl_scale={self.kl_scale}: the KL's largest share, from 0 to 1, is wanted.")
        if not 0 < self.step_decay <= 10:
            raise LabError(f"loss.step_decay={self.step_decay}: a number above 0 is wanted, 0.8 or 1.0 say.")


OPTIMIZERS = (
    *("torch.optim.AdamW", "torch.optim.Adam", "torch.optim.Adamax", "torch.optim.NAdam", "torch.optim.RAdam"),
    *("torch.optim.Adafactor", "torch.optim.SGD", "torch.optim.RMSprop", "torch.optim.Rprop", "torch.optim.Adagrad"),
    *("torch.optim.Adadelta", "torch.optim.ASGD"),
)
"""Those that train dense parameters of any shape in one call per step: not SparseAdam, LBFGS and Muon."""


@dataclass
class Optim:
    optimizer: dict[str, Any] = field(default_factory=lambda: {"_target_": "torch.optim.AdamW"})
    """`_target_` (one of OPTIMIZERS) and its arguments; lr is required."""
    warmup_fraction: float = 0.03
    """Share of all steps with a linear warm-up."""
    final_lr_fraction: float = 0.05
    """The cosine ends at this share of the peak learning rate."""
    grad_clip: float = 1.0

    def __post_init__(self) -> None:
        if (target := self.optimizer.get("_target_")) not in OPTIMIZERS:
            raise LabError(f"optim.optimizer._target_={target}: one of {', '.join(OPTIMIZERS)} is wanted.")
        at_least("optim", self, warmup_fraction=0, final_lr_fraction=0, grad_clip=0)
        if self.warmup_fraction > 1 or self.final_lr_fraction > 1:
            raise LabError(
                f"optim.warmup_fraction={self.warmup_fraction}, optim.final_lr_fraction={self.final_lr_fraction}: "
                "fractions in [0, 1] are wanted."
            )


class Capture(Enum):
    cached = "cached"
    """Target states are computed once and kept in memory for all epochs (small data)."""
    online = "online"
    """The frozen target runs in every step."""
    stored = "stored"
    """States are captured to disk once (`eagle-lab features`) and read from there; the target is not loaded."""


class Strategy(Enum):
    ddp = "ddp"
    """Every process holds the whole head and its optimiser."""
    fsdp = "fsdp"
    """FSDP2: weights, gradients and optimiser are cut between the processes."""


class Keep(Enum):
    last = "last"
    best = "best"
    """The weights of the held-out pass with the longest proxy accept length."""


@dataclass
class Trainer:
    max_epochs: int = 1
    """0 exports the head as initialised."""
    max_steps: int = -1
    """Optimiser steps; -1 = as many as the epochs have."""
    max_tokens: int | None = None
    """Supervised tokens of the dataset that are trained on, in rows drawn at random; null = all."""
    batch_size: int = 8
    """Conversations per step, at most."""
    batch_tokens: int | None = None
    """Tokens per step with padding, at most; null = batch_size alone decides."""
    accumulate: int = 1
    """Batches that a step is done in, one after another: less memory, the same gradient."""
    devices: int = 1
    """Processes that share every step, one GPU each (`accelerator=cpu`: all on this CPU)."""
    strategy: Strategy = Strategy.ddp
    """What the processes of `devices` hold."""
    target_map: str | None = None
    """Spreads the frozen target over all GPUs (auto, balanced or sequential); null = it is where the head is."""
    accelerator: str = "auto"
    precision: str = "auto"
    """32-true, or bf16-mixed: weights and optimiser stay fp32 under it. auto: bf16-mixed on a GPU that has it."""
    capture: Capture = Capture.cached
    noise: float = 0.0
    """Uniform noise on the aux states: at most this share of each state's root mean square. EAGLE's was +-0.1.

    Drawn anew for each step, part and process: another number of devices or parts draws other noise."""
    keep: Keep = Keep.last
    """Which weights become the head. best needs data.holdout."""
    patience: int | None = None
    """Ends training after so many held-out passes (one per epoch) without a longer proxy accept length."""
    checkpoint_every: int = 100
    """Steps between resumable checkpoints."""
    log_every: int = 10
    num_threads: int | None = None
    """Torch CPU threads; null = all cores, beside a GPU at most 4."""
    deterministic: bool = True

    def __post_init__(self) -> None:
        one_of("trainer", self, accelerator=("auto", "cpu", "gpu", "cuda"), precision=("auto", "32-true", "bf16-mixed"))
        if self.target_map is not None:
            one_of("trainer", self, target_map=("auto", "balanced", "sequential"))
            if self.devices > 1:
                raise LabError(
                    f"trainer.target_map={self.target_map} with trainer.devices={self.devices}: each process would "
                    "spread a target of its own. Use one, or trainer.capture=stored."
                )
        at_least(
            "trainer",
            self,
            max_epochs=0,
            max_steps=-1,
            max_tokens=1,
            batch_size=1,
            batch_tokens=1,
            accumulate=1,
            devices=1,
            checkpoint_every=1,
            log_every=1,
            num_threads=1,
            patience=1,
            noise=0,
        )


@dataclass
class BenchOps:
    """What bench-ops times; the sizes are those of the head that the config trains."""

    tokens: int = 4096
    """Of the one document."""
    supervised: float = 1.0
    """Share of them that are supervised: chat data has about 0.6."""
    repeats: int = 7
    cases: list[str] | None = None
    """null = all."""

    def __post_init__(self) -> None:
        at_least("bench_ops", self, tokens=2, repeats=2)
        if not 0 < self.supervised <= 1:
            raise LabError(f"bench_ops.supervised={self.supervised}: a share above 0 and up to 1 is wanted.")


@dataclass
class Plan:
    """What `plan` counts for."""

    gpu: str | None = None
    """The GPU that will train, by a part of its name (h100, rtx 4090); null = this machine's."""
    gpus: int = 1
    """So many of them, over which trainer.target_map spreads the target."""
    measure: bool = False
    """Trains some steps on made-up rows of data.max_length here, and tells the time and memory that they took."""

    def __post_init__(self) -> None:
        at_least("plan", self, gpus=1)
        if self.gpu is not None and gpu_named(self.gpu) is None:
            raise LabError(f"plan.gpu={self.gpu}: not a known GPU. Known are {', '.join(GPUS)}.")


class OpsImpl(Enum):
    auto = "auto"
    reference = "reference"
    triton = "triton"


@dataclass
class Ops:
    impl: OpsImpl = OpsImpl.auto
    """reference: PyTorch; triton: our kernels; auto: triton on a GPU, the reference elsewhere."""
