"""The groups that decide what is served, asked and tracked: spec, server, suite, track."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as default
from enum import Enum
from urllib.parse import urlsplit

from omegaconf import MISSING

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema_training import RowFormat, at_least, one_of
from eagle_lab.config.spec import complete


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


ATTENTION_BACKENDS = {
    ServerKind.cpu: ("intel_amx",),
    ServerKind.gpu: (
        *("triton", "flashinfer", "fa3", "fa4", "flashmla", "trtllm_mha", "trtllm_mla", "cutedsl_mla"),
        *("tokenspeed_mla", "dsa", "nsa", "dsv4", "aiter"),
    ),
}
"""Those that SGLang can draft with (srt/speculative/draft_utils.py)."""


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
    stall_timeout_s: float = 180.0
    """A server with requests in flight that logs nothing for so long hangs, and is stopped."""

    def __post_init__(self) -> None:
        at_least("server", self, context_length=1, max_running_requests=1, max_total_tokens=1, tp=1, num_threads=1)
        if not 0 < self.mem_fraction < 1:
            raise LabError(f"server.mem_fraction={self.mem_fraction}: a fraction between 0 and 1 is wanted.")
        one_of("server", self, dtype=("float32", "bfloat16", "float16"))
        at_least("server", self, start_timeout_s=1, request_timeout_s=1)
        if (self.kind is ServerKind.url) != (self.url is not None):
            raise LabError(
                f"server.kind={self.kind.value} with server.url={self.url!r}: use server=url "
                "server.url=http://127.0.0.1:30000 to measure a running server, or drop server.url."
            )
        if self.url is not None:
            check_url(self.url)
        if not self.stall_timeout_s > 0:
            raise LabError(f"server.stall_timeout_s={self.stall_timeout_s}: seconds above 0 are wanted.")
        self._check_device()
        if self.port is not None and not 1 <= self.port <= 55535:
            raise LabError(f"server.port={self.port}: SGLang also takes port + 10000, so 1..55535 is legal.")

    def _check_device(self) -> None:
        """What the other device has not: SGLang would ignore it, or die of it after minutes."""
        cpu, gpu = self.kind is ServerKind.cpu, self.kind is ServerKind.gpu
        legal = ATTENTION_BACKENDS.get(self.kind, (self.attention_backend,))
        if self.attention_backend not in legal:
            raise LabError(
                f"server.attention_backend={self.attention_backend} with server.kind={self.kind.value}: "
                f"one of {', '.join(legal)} is wanted. server=cpu and server=gpu set what belongs to them."
            )
        wrong = {"tp": self.tp != 1, "quantization": self.quantization is not None} if cpu else {}
        if gpu:
            wrong = {"num_threads": self.num_threads is not None}
        if found := [f"server.{key}={getattr(self, key)}" for key, is_wrong in wrong.items() if is_wrong]:
            raise LabError(f"{', '.join(found)}: not with server={self.kind.value}. Leave it out.")


def check_url(url: str) -> None:
    """Raises LabError for what is not http(s)://host:port, with or without a path."""
    try:
        parts = urlsplit(url)
        legal = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:  # a port that is no number
        legal = False
    if not legal or parts.query or parts.fragment:
        raise LabError(f"server.url={url}: http://host:port or https://host:port is wanted.")


class Engine(Enum):
    sglang = "sglang"
    vllm = "vllm"
    """By what its source says: no vLLM server is started."""


@dataclass
class Doctor:
    """What doctor, and the checks before train and bench, do with what they find."""

    engine: Engine = Engine.sglang
    """doctor: the engine that is to load the head."""
    views: bool = False
    """doctor: also a table of what each engine loads, drops, defaults or overwrites."""
    ignore: list[str] = default(default_factory=list)
    """Checks by name that may fail; rows name them."""
    json: bool = False
    """doctor: one JSON list instead of a table."""
    dry_step: bool = False
    """Makes some training steps of the largest size on this machine, where there is a dataset."""


@dataclass
class Suite:
    """Held-out prompts and how they are asked."""

    name: str = MISSING
    path: str | None = None
    """JSONL or JSON file, may be gzipped; null = fetched from `source`, or the suite of this name shipped with
    eagle_lab."""
    source: str | None = None
    """Public URL of the file, at a fixed revision; fetched once into paths.cache when `path` is null."""
    format: RowFormat = RowFormat.auto
    field: str | None = None
    """The key that holds the user turn, in rows without messages, conversations or turns."""
    category: str = "category"
    """The key that holds the category of a row, where rows have one."""
    limit: int | None = None
    """First n prompts only; null = all."""
    max_new_tokens: int = 128
    temperature: float = 0.0
    concurrency: int = 1
    """Requests in flight."""
    seed: int = 0
    """Of the server's sampling; changes nothing at temperature 0."""
    timed: bool = True
    """false = accept length only: such points may run side by side (jobs=N)."""
    trace: bool = True
    """Ask a timed point's requests once more, untimed and step by step: does acceptance change along an answer?"""
    replay: int = 16
    """Requests of a greedy chain that our own head code replays afterwards, to tell serving from training; 0 = none."""

    def __post_init__(self) -> None:
        at_least("suite", self, limit=1, max_new_tokens=1, temperature=0, concurrency=1, seed=0, replay=0)


class TrackMode(Enum):
    auto = "auto"
    """online with a key (WANDB_API_KEY or ~/.netrc), offline without."""
    online = "online"
    offline = "offline"


class TrackKind(Enum):
    none = "none"
    wandb = "wandb"


@dataclass
class Track:
    kind: TrackKind = TrackKind.wandb
    project: str = "eagle_lab"
    entity: str | None = None
    mode: TrackMode = TrackMode.auto
