"""From a config, a located target and a dataset to a trained head on disk."""

from __future__ import annotations

import logging
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule

from eagle_lab.config.aux_layers import resolve
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import replacing
from eagle_lab.config.schema import Capture, Config, DraftInit, Keep, Strategy
from eagle_lab.data.dataset import Dataset
from eagle_lab.data.vocab_map import VocabMap, build_map, coverage
from eagle_lab.draft.cost import Document, step_flops
from eagle_lab.draft.head import Head
from eagle_lab.draft.init import initialise
from eagle_lab.draft.known import analytic_head, kept_ids
from eagle_lab.draft.replay import accept_length, rounds
from eagle_lab.draft.shape import head_shape
from eagle_lab.draft.unroll import Batch, hits
from eagle_lab.ops.dispatch import OpSet, op_set
from eagle_lab.target.locate import LocatedTarget
from eagle_lab.target.model import TargetModel
from eagle_lab.target.weights import TargetWeights
from eagle_lab.track.tracker import Tracker
from eagle_lab.train.callbacks import AuxStates, Metrics, Preemption, Throughput, progress
from eagle_lab.train.checkpoints import BEST, CHECKPOINTS, keep_best, newest
from eagle_lab.train.device import compute_device, precision, release, set_threads, shared, target_dtype
from eagle_lab.train.features import Stored, capture
from eagle_lab.train.feed import Cached, Feed, Online, Source, supervised
from eagle_lab.train.fuse import fuse
from eagle_lab.train.launch import stopping_in_time
from eagle_lab.train.metrics import StepCounts
from eagle_lab.train.module import HeadModule, step_rows
from eagle_lab.train.schedule import Plan, Steps, grouped, padding, plan

HEAD_FILE = "head.safetensors"
SAMPLE_FILE = "sample.safetensors"
NOTHING = {"steps": 0, "trained_tokens": 0}


def train_head(
    config: Config,
    located: LocatedTarget,
    dataset: Dataset,
    out: Path,
    track: Tracker,
    features: tuple[Path, dict[str, Any]] | None = None,
    start: dict[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Trains (or takes up) the head in `out`, writes HEAD_FILE there and returns the manifest's facts.

    features: a finished capture (its directory and facts) of this dataset, with trainer.capture=stored.
    start: the state dict of the head that draft.init=head goes on from.
    """
    L.seed_everything(config.seed, verbose=False)
    device, ops = _prepared(config)
    dataset = dataset.cut(config.trainer.max_tokens)
    aux_layers = resolve(config.aux, located.num_hidden_layers)
    target, source = _states(config, located, dataset, features, device, ops)
    head = build_head(config, located, target, dataset, len(aux_layers), ops, start)
    head.lm_head.requires_grad_(not config.draft.freeze_lm_head)
    feed = Feed(dataset.rows, source, device)
    t, lengths = config.trainer, [len(row.input_ids) for row in dataset.train]
    schedule = plan(lengths, t.batch_size, t.max_epochs, t.max_steps, config.seed, t.batch_tokens)
    how = config.loss, config.optim, len(schedule.steps), t.noise, config.seed
    module = HeadModule(head, target.lm_head_weight, *how).to(device)
    done = fit(config, module, feed, dataset, schedule, out, track) if schedule.steps else NOTHING
    head = module.head = whole(head)
    if shared(config).rank:
        return {}  # the first process writes what there is to write
    kept = keep_best(config, module, out / CHECKPOINTS, done["steps"])
    module.to(device)  # lightning leaves it on the CPU
    vocab = VocabMap(head.d2t.cpu().numpy(), head.t2d.cpu().numpy())
    facts = {
        "aux_layers": aux_layers,
        "shape": head.shape.__dict__,
        **done,
        "kept_step": kept,
        "padding": padding(schedule.steps, lengths),
        "skipped_steps": module.skipped,
        "ops": head.ops.paths(),
        "device": device.type,
        "precision": precision(t.precision, device),
        "metrics": held_out_metrics(module, feed, dataset, config),
        "coverage": {
            name: coverage(vocab, part.answer_ids())
            for name, part in (("train", dataset.train), ("held_out", dataset.holdout))
        },
        "vocab_digest": vocab.digest,
    }
    _save(out / HEAD_FILE, head.state_dict())
    _save(out / SAMPLE_FILE, sample(feed, dataset, target))
    return facts


def _prepared(config: Config) -> tuple[torch.device, OpSet]:
    device = compute_device(config)
    set_threads(config, device)
    return device, op_set(config.ops.impl.value, device)


def _states(
    config: Config,
    located: LocatedTarget,
    dataset: Dataset,
    features: tuple[Path, dict[str, Any]] | None,
    device: torch.device,
    ops: OpSet,
) -> tuple[TargetModel | TargetWeights, Source]:
    """The target, or of it what a head is made from where its states are stored; and where these come from."""
    if features is not None:
        weights = TargetWeights(located, device=device, dtype=target_dtype(config, device))
        return weights, Stored(*features, dataset.rows)
    target = frozen_target(config, located, device, ops)
    online = Online(target, dataset.rows, device, ops)
    return target, Cached(online) if config.trainer.capture is Capture.cached else online


def frozen_target(config: Config, located: LocatedTarget, device: torch.device, ops: OpSet) -> TargetModel:
    aux_layers = resolve(config.aux, located.num_hidden_layers)
    target = TargetModel(located, aux_layers, device, target_dtype(config, device), config.trainer.target_map)
    # our kernels start on the current device, and accelerate's hooks stand in the forward that fuse replaces
    if ops != OpSet() and config.trainer.target_map is None:
        fuse(target.decoder, ops)
    return target


def capture_features(config: Config, located: LocatedTarget, dataset: Dataset, out: Path) -> dict[str, Any]:
    """Captures what is missing of the dataset's states in `out`; returns the manifest's facts."""
    device, ops = _prepared(config)
    target = frozen_target(config, located, device, ops)
    aux_layers = resolve(config.aux, located.num_hidden_layers)
    width, at_once = len(aux_layers) * located.hidden_size, config.trainer.batch_size
    online = Online(target, dataset.rows, device, ops)
    tell = partial(print, file=sys.stderr, flush=True)
    facts = capture(out, dataset.rows, online, width, located.hidden_size, at_once, tell)
    del target, online
    release(device)
    return {"aux_layers": aux_layers, **facts}


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    with replacing(path) as aside:
        save_file({n: t.detach().cpu().contiguous() for n, t in tensors.items()}, aside)


def sample(feed: Feed, dataset: Dataset, target: TargetModel | TargetWeights) -> dict[str, Tensor]:
    """aux [S, A*H] and embeds [S, H] of one document, with which the export is checked without the target."""
    index = int((dataset.holdout if len(dataset.holdout) else dataset.train).indices[0])
    ids = torch.from_numpy(dataset.rows[index].input_ids.astype(np.int64)).to(target.embed_weight.device)
    return {"aux": feed.states([index])[0].aux, "embeds": target.embed_weight[ids]}


def build_head(
    config: Config,
    located: LocatedTarget,
    target: TargetModel | TargetWeights,
    dataset: Dataset,
    num_aux: int,
    ops: OpSet,
    start: dict[str, Tensor] | None = None,
) -> Head:
    """The initialised head with its vocabulary map."""
    draft = config.draft
    if draft.init in (DraftInit.analytic, DraftInit.head):
        size = len(start["d2t"]) if start else len(kept_ids(located.vocab_size, draft.skip))
        shape = head_shape(replace(draft, vocab_size=size), located.config, num_aux)
        head = Head(shape, ops)
        embed, lm_head = (w.detach().cpu().float() for w in (target.embed_weight, target.lm_head_weight))
        head.load_state_dict(start or analytic_head(embed, lm_head, shape, draft.skip))
        head.embed = target.embed_weight.detach().clone()
        return head
    shape = head_shape(draft, located.config, num_aux)
    head = Head(shape, ops)
    vocab = build_map(dataset, shape.draft_vocab_size, shape.vocab_size, always=located.eos_token_ids)
    head.d2t.copy_(torch.from_numpy(vocab.d2t))
    head.t2d.copy_(torch.from_numpy(vocab.t2d))
    head.embed = target.embed_weight.detach().clone()
    initialise(head, draft.init, target.init_weights(), config.seed)
    return head


def fit(
    config: Config, module: HeadModule, feed: Feed, dataset: Dataset, schedule: Plan, out: Path, track: Tracker
) -> dict[str, int]:
    """Runs Lightning from the last checkpoint, if there is one; returns how many steps and supervised positions."""
    t, share = config.trainer, shared(config)
    t2d = module.head.t2d

    def batches(indices: list[int]) -> list[Batch]:
        return feed.parts(indices, share, lambda batch: step_rows(batch, t2d, config.loss).trained)

    quiet()
    train = [dataset.train.indices[step].tolist() for step in schedule.steps]
    ahead = 1 if feed.device.type == "cuda" else 0  # on a CPU the next batch would only take its cores
    loader = Steps(train, batches, lambda: trainer.global_step, each=share.parts, ahead=ahead)
    trainer = L.Trainer(
        accelerator="gpu" if feed.device.type == "cuda" else "cpu",
        devices=share.world,
        strategy=_strategy(config, share.world),
        accumulate_grad_batches=share.parts,
        precision=precision(t.precision, feed.device),  # type: ignore[arg-type]
        max_epochs=1,  # all epochs are one list of steps: a resume then never depends on epoch bookkeeping
        gradient_clip_val=config.optim.grad_clip,
        logger=False,
        log_every_n_steps=t.log_every,
        callbacks=_callbacks(config, module, feed, out, track, loader),
        enable_progress_bar=sys.stderr.isatty(),
        val_check_interval=min(schedule.steps_per_epoch, len(schedule.steps)) * share.parts,
        num_sanity_val_steps=0,
        deterministic=t.deterministic and feed.device.type == "cpu",
        enable_model_summary=False,
        default_root_dir=out,
        use_distributed_sampler=False,
    )
    held_out = held_out_batches(config, dataset)
    if not held_out and (t.keep is Keep.best or t.patience is not None):
        raise LabError("trainer.keep=best and trainer.patience: the dataset holds nothing out. Raise data.holdout.")
    with stopping_in_time():
        try:
            trainer.fit(
                module,
                train_dataloaders=loader,
                val_dataloaders=Steps(held_out, lambda i: [feed.batch(i)], lambda: 0) if held_out else None,
                ckpt_path=newest(out / CHECKPOINTS),
            )
        except SystemExit as e:
            # lightning turns Ctrl-C into sys.exit(1), which would read as a crash
            raise KeyboardInterrupt from e
    steps = trainer.global_step
    left_out = set(module.skipped)
    taken = (step for at, step in enumerate(train[:steps]) if at not in left_out)
    tokens = sum(len(supervised(dataset.rows[i])) for step in taken for i in step)
    return {"steps": steps, "trained_tokens": tokens}


def _strategy(config: Config, world: int) -> Any:
    if world == 1:
        return "auto"
    if config.trainer.strategy is Strategy.fsdp:
        # whole checkpoints: one process may take up what many have left
        return ModelParallelStrategy(
            data_parallel_size=world, tensor_parallel_size=1, save_distributed_checkpoint=False
        )
    return DDPStrategy(broadcast_buffers=False)  # the buffers are the target's, the same everywhere


def whole(head: Head) -> Head:
    """The head in one piece, where FSDP2 had cut it; all processes must ask together."""
    if not isinstance(head, FSDPModule):
        return head
    everything = StateDictOptions(full_state_dict=True, cpu_offload=True)
    tensors = get_model_state_dict(head, options=everything)
    made = Head(head.shape, head.ops)
    if dist.get_rank() == 0:  # only there it is not empty
        made.load_state_dict(tensors)
    made.embed = head.embed
    return made


def _flops(config: Config, module: HeadModule, feed: Feed, rows: list[int]) -> float:
    """Of a step of these rows; the target's pass with it where it runs in every step."""
    documents = [Document(len(row.input_ids), len(supervised(row))) for row in map(feed.rows.__getitem__, rows)]
    online = isinstance(feed.states, Online)
    head = step_flops(module.head.shape, config.loss.unroll_steps, documents, whole_teacher=online)
    passed = feed.states.target.passed_parameters if isinstance(feed.states, Online) else 0
    return head + 2.0 * passed * sum(d.tokens for d in documents)


def _callbacks(
    config: Config, module: HeadModule, feed: Feed, out: Path, track: Tracker, loader: Steps
) -> list[Callback]:
    t, checkpoints = config.trainer, out / CHECKPOINTS
    found: list[Callback] = [
        ModelCheckpoint(
            dirpath=checkpoints,
            filename="{step}",
            # the two newest: one may be torn by a full disk or a power cut
            monitor="step",
            mode="max",
            save_top_k=2,
            every_n_train_steps=t.checkpoint_every,
        ),
        Throughput(t.log_every, lambda: loader.waited, lambda step: _flops(config, module, feed, loader.steps[step])),
        AuxStates(t.log_every, module.head.shape.num_aux),
        Metrics(out / "metrics.jsonl", t.log_every, track, loader.steps),
        Preemption(checkpoints),
        progress(),
    ]
    by: dict[str, Any] = {"monitor": "held_out/proxy_accept_length", "mode": "max"}
    if t.keep is Keep.best:
        how: dict[str, Any] = {"save_top_k": 1, "save_weights_only": True, "enable_version_counter": False}
        found.append(ModelCheckpoint(checkpoints, BEST, **how, **by))
    if t.patience is not None:
        found.append(EarlyStopping(patience=t.patience, **by))
    return found


def held_out_batches(config: Config, dataset: Dataset) -> list[list[int]]:
    """Row numbers of the dataset, of similar length and no more at once than in training."""
    t, held = config.trainer, dataset.holdout
    lengths = [len(row.input_ids) for row in held]
    order = sorted(range(len(held)), key=lambda i: lengths[i])
    return [held.indices[step].tolist() for step in grouped(order, lengths, t.batch_size, t.batch_tokens)]


def quiet() -> None:
    """Keeps Lightning's advertisements and its warnings about itself out of a run's output."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")


@torch.no_grad()
def held_out_metrics(module: HeadModule, feed: Feed, dataset: Dataset, config: Config) -> dict[str, float]:
    """Held-out accuracies, proxy accept length, and the accept length replayed over whole answers.

    The replay walks round by round over each held-out answer, as greedy serving does on the same tokens with
    unroll_steps drafts; it is exact for greedy answers and an estimate for sampled ones.
    """
    module.eval()
    counts = StepCounts(config.loss.unroll_steps)
    per_round: list[int] = []
    mixed = precision(config.trainer.precision, feed.device) == "bf16-mixed"
    for indices in held_out_batches(config, dataset):
        batch = feed.batch(indices)
        with torch.autocast(feed.device.type, torch.bfloat16, enabled=mixed):
            counts.merge(module.forward_steps(batch)[1])
            found = hits(module.head, batch, config.loss.unroll_steps).cpu().numpy()
        docs = batch.layout.row_doc.cpu().numpy()
        for doc in np.unique(docs):
            per_round += rounds(found[docs == doc], config.loss.unroll_steps)
    if not per_round:
        return {}
    return {**counts.summary(), "replayed_accept_length": accept_length(per_round)}
