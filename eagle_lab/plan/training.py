"""A training in numbers: rows and steps, memory, disk and hours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eagle_lab.config.gpus import GPUS, Gpu, gpu_named
from eagle_lab.config.schema import Capture, Config, Experts, TargetFacts
from eagle_lab.config.schema_training import Source
from eagle_lab.data.sources import read_source
from eagle_lab.draft.cost import BF16, FP32, Document, head_parameters
from eagle_lab.draft.shape import HeadShape
from eagle_lab.plan.cost import TargetSize, Training, features_bytes, memory, pass_seconds, step_seconds

GIB = 2**30
DENSE = tuple(f"{family}ForCausalLM" for family in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Phi3"))
"""Classes whose weights follow from the facts; a mixture of experts' do not."""
ROOM = 0.9
"""Of a GPU, for the target's weights."""
CHECKPOINTS = 3
"""On disk at once: the two newest, and the next while it is written."""


@dataclass(frozen=True)
class Work:
    """What there is to train on."""

    documents: Sequence[Document]
    """Of the training rows; where no dataset is there, the most that the sources can give."""
    tokens: int
    rows: int
    """Supervised positions; both of all rows, held out or not."""
    steps: Sequence[Sequence[int]]
    """Documents of every optimiser step, all epochs."""
    known: str | None
    """The dataset that was found."""

    @property
    def tokens_trained(self) -> int:
        return sum(self.documents[i].tokens for step in self.steps for i in step)

    @property
    def largest(self) -> list[Document]:
        """The documents of the step with the most tokens."""
        step = max(self.steps, key=lambda step: sum(self.documents[i].tokens for i in step), default=[])
        return [self.documents[i] for i in step]


def target_size(facts: TargetFacts, experts: Experts) -> TargetSize | None:
    """By the facts, or what is said of the experts; None for one whose weights follow from neither."""
    h, n, heads = facts.hidden_size, facts.num_hidden_layers, facts.num_attention_heads
    wide = facts.intermediate_size
    if not (h and n and heads and wide and facts.vocab_size):
        return None
    if experts.parameters and experts.active_parameters:
        whole = experts.weight_bytes * experts.parameters
        return TargetSize(whole, experts.active_parameters, h, wide, facts.vocab_size)
    if facts.architecture not in DENSE:
        return None
    kv = facts.num_key_value_heads or heads
    layers = n * h * (2 * h + 2 * kv * (h // heads) + 3 * wide)
    return TargetSize(BF16 * (layers + 2 * facts.vocab_size * h), layers, h, wide, facts.vocab_size)


@dataclass(frozen=True)
class Needs:
    """What a training takes, in bytes."""

    states: float
    """The target's states of all rows: on disk (capture=stored), in the host's memory (cached), or nowhere (online)."""
    checkpoints: float
    memory: dict[str, float] | None
    """Of one GPU at the largest step, by what holds it; None for a target whose size does not follow from its facts."""

    def fits(self, gpu: Gpu) -> bool | None:
        return None if self.memory is None else sum(self.memory.values()) < gpu.gib * GIB


def largest_step(config: Config, facts: TargetFacts, shape: HeadShape, work: Work) -> Training:
    """One GPU's part of it."""
    share = max(1, config.trainer.devices * config.trainer.accumulate)
    return Training(
        shape=shape,
        steps=config.loss.unroll_steps,
        documents=work.largest[::share],
        optimizer=config.optim.optimizer["_target_"].rsplit(".", 1)[-1],
        frozen_lm_head=config.draft.freeze_lm_head,
        target=None if config.trainer.capture is Capture.stored else target_size(facts, config.target.experts),
        spread=config.plan.gpus if config.trainer.target_map else 1,
    )


def needs(config: Config, facts: TargetFacts, shape: HeadShape, work: Work) -> Needs:
    unknown = config.trainer.capture is not Capture.stored and target_size(facts, config.target.experts) is None
    return Needs(
        states=features_bytes(shape, work.tokens, work.rows),
        checkpoints=CHECKPOINTS * 3 * FP32 * head_parameters(shape),
        memory=None if unknown else memory(largest_step(config, facts, shape, work)),
    )


def planned(config: Config, facts: TargetFacts, shape: HeadShape, work: Work, here: str | None) -> dict[str, str]:
    """Label -> text. here: the name of this machine's GPU."""
    need = needs(config, facts, shape, work)
    place = {
        Capture.cached: f"{_gib(need.states)} of host memory",
        Capture.stored: f"{_gib(need.states)} on disk",
        Capture.online: f"none are kept (trainer.capture=stored would take {_gib(need.states)} on disk)",
    }[config.trainer.capture]
    known = work.known or f"none is made yet; at most {len(work.documents):,} rows of data.max_length"
    found = {
        "dataset": f"{known}: {work.tokens:,} tokens, {work.rows:,} supervised",
        "training": f"{len(work.steps):,} steps, {work.tokens_trained:,} tokens",
        "target's states": place,
        "checkpoints": f"{_gib(need.checkpoints)} on disk",
    }
    name = config.plan.gpu or here
    gpu = gpu_named(name) if name else None
    if gpu is None:
        return found | {"memory, hours": _unknown(name)}
    if need.memory is None:
        why = f"not counted: the size of a {facts.architecture} does not follow from facts"
        return found | {"memory, hours": f"{why}; target.experts says it, or trainer.capture=stored needs no target"}
    whole = sum(need.memory.values())
    fits = "" if need.fits(gpu) else f" DOES NOT FIT: {_smaller(need.memory, gpu)}"
    listed = ", ".join(f"{part} {value / GIB:.1f}" for part, value in need.memory.items() if value > 0.05 * GIB)
    taken = seconds(config, largest_step(config, facts, shape, work), work, gpu)
    speed = f"{work.tokens_trained / taken:,.0f} tokens/s" if taken else "no step"
    size = target_size(facts, config.target.experts)
    if config.trainer.capture is Capture.stored and size:
        once = pass_seconds(size, work.tokens, work.rows, gpu)
        held = math.ceil(size.weights / (ROOM * gpu.gib * GIB))
        found["capturing them"] = (
            f"about {hours(once)} with the target ({_gib(size.weights)}) on {held} x {name}"
            f"{', one at work at a time' if held > 1 else ''}"
        )
    return found | {
        "GPU memory": f"{_gib(whole)} of {gpu.gib:.0f} on {name} at the largest step:{fits} {listed}",
        "hours": f"about {hours(taken)} on {config.trainer.devices} x {name} ({speed}), by sizes alone",
    }


def _smaller(held: dict[str, float], gpu: Gpu) -> str:
    """What would make a step fit."""
    if held["target"] < ROOM * gpu.gib * GIB:
        return "lower trainer.batch_tokens or batch_size."
    return "trainer.target_map=auto with more GPUs (plan.gpus), or trainer.capture=stored."


def seconds(config: Config, training: Training, work: Work, gpu: Gpu) -> float:
    """Of all steps: the largest one's time per token. States that are kept cost the target's pass once only."""
    first, later = work.tokens_trained, 0
    if config.trainer.capture is Capture.cached:
        first = min(first, sum(d.tokens for d in work.documents))
        later = work.tokens_trained - first
    once, again = (step_seconds(t, gpu) for t in (training, replace(training, target=None)))
    return (once * first + again * later) / max(1, training.tokens) / config.trainer.devices


def hours(taken: float) -> str:
    return f"{taken / 3600:.2f} h" if taken >= 360 else f"{taken / 60:.1f} min"


def _unknown(name: str | None) -> str:
    listed = ", ".join(GPUS)
    return f"not counted: {name or 'no GPU here'}; plan.gpu= takes {listed}, and plan.measure=true measures"


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB"


def at_most(config: Config) -> list[Document]:
    """The training rows that the sources can give, each of full length; of a file that is not here yet its count, or
    2,000, as if each conversation had one answer; the share held out is of rows. Not more than have trainer.max_tokens.
    Raises LabError for a file that cannot be read as its source says.
    """
    count = sum(_answers(source) for source in config.data.sources)
    length = config.data.max_length
    rows = max(1, math.floor(count * (1 - config.data.holdout)))
    if config.trainer.max_tokens is not None:
        rows = min(rows, math.ceil(config.trainer.max_tokens / (length - 1)))
    return [Document(length, length - 1)] * rows


def _answers(source: Source) -> int:
    """A training row is one answer, so that a conversation of eleven turns makes eleven."""
    if source.path is None:
        return source.count or 2000
    return sum(len(conversation.turns) for conversation in read_source(source))
