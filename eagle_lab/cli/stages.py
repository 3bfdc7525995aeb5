"""The chain of stages that a config stands for. Each one is done once per content, whoever asks for it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_lab.config.aux_layers import resolve
from eagle_lab.config.digest import plain
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import read_json
from eagle_lab.config.load import dump
from eagle_lab.config.model_config import read_export, read_head
from eagle_lab.config.paths import head_directory
from eagle_lab.config.provenance import provenance, versions
from eagle_lab.config.schema import Capture, Config
from eagle_lab.config.stage import MANIFEST, Stage, stage, stage_path
from eagle_lab.serve.pairing import check_target
from eagle_lab.track.tracker import NOWHERE, Artifact, Tracker

if TYPE_CHECKING:
    from torch import Tensor

    from eagle_lab.data.dataset import Dataset
    from eagle_lab.evaluate.suites import Prompts
    from eagle_lab.target.locate import LocatedTarget

# raised when a change of code changes what a stage produces, so that older results are not taken for new ones
FEATURES_FORMAT = 1
TRAIN_FORMAT = 1
EXPORT_FORMAT = 3
# trainer settings that change how a run is watched or spread, not what it produces
WATCHING = ("checkpoint_every", "log_every", "num_threads", "devices", "strategy", "target_map")


@dataclass(frozen=True)
class ExportedHead:
    path: Path
    """The SGLang directory."""
    digest: str
    """Of its config.json and weights; names the head in every row."""
    aux_layers: list[int]
    """Canonical ids; empty when the head came from elsewhere and does not say."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Its export.json: what it was made for and from."""


def outputs(config: Config) -> Path:
    return Path(config.paths.outputs).resolve()


def locate_target(config: Config) -> LocatedTarget:
    from eagle_lab.target.locate import locate

    return locate(config.target, Path(config.paths.cache))


def load_prompts(config: Config) -> Prompts:
    """The suite's prompts; its file is fetched first where it is neither given nor shipped."""
    from eagle_lab.config.fetch import located
    from eagle_lab.evaluate.suites import load_suite

    return load_suite(located(config.suite, Path(config.paths.cache)))


def dataset_stage(config: Config) -> tuple[LocatedTarget, Stage, Dataset]:
    """The target and the finished dataset; what can be refused of a training is refused before the data is made."""
    from eagle_lab.data.build import build
    from eagle_lab.data.dataset import load
    from eagle_lab.train.device import check_settings

    target = locate_target(config)
    check_target(target.path, target.architecture)
    resolve(config.aux, target.num_hidden_layers)
    check_settings(config)
    built = build(config, target, outputs(config))
    return target, built, load(built.path)


def known_dataset(config: Config) -> Dataset | None:
    """The config's dataset if it is made already; nothing is fetched or made to find out."""
    from eagle_lab.data.build import place
    from eagle_lab.data.dataset import load

    root = outputs(config)
    made = root.glob(f"datasets/{config.data.name}-*/manifest.json")
    if not any(read_json(file).get("target") == config.target.name for file in made):
        return None  # else its target is on this disk, too
    path = place(config, locate_target(config), root)
    return load(path) if (path / MANIFEST).exists() else None


def _content(dataset: Dataset) -> list[str]:
    """The tokens too: self-written text is not the same twice."""
    return [dataset.digest, dataset.manifest["tokens_digest"]]


def features_stage(config: Config, target: LocatedTarget, dataset: Dataset) -> Stage:
    """The captured states of the whole dataset: manifest and shards."""
    from eagle_lab.train.fit import capture_features

    with stage(outputs(config), "features", target.name, _features_key(config, target, dataset)) as work:
        if work.manifest is None:
            work.finish(capture_features(config, target, dataset, work.path))
    return work


def _features_key(config: Config, target: LocatedTarget, dataset: Dataset) -> dict[str, Any]:
    return {
        "format": FEATURES_FORMAT,
        "target": target.digest,
        "dataset": _content(dataset),
        "aux": resolve(config.aux, target.num_hidden_layers),
        "dtype": config.server.dtype,
    }


def train_stage(config: Config, track: Tracker = NOWHERE) -> Stage:
    """The trained head's directory: manifest, head.safetensors, metrics.jsonl, checkpoints."""
    from eagle_lab.cli.doctor import stop_at_failures
    from eagle_lab.train.fit import train_head

    target, built, dataset = dataset_stage(config)
    first = first_head(config, target)
    stored = features_stage(config, target, dataset) if config.trainer.capture is Capture.stored else None
    key = _train_key(config, target, dataset, stored.digest if stored else None, first)
    with stage(outputs(config), "heads", target.name, key) as work:
        track.link(target=target.digest, dataset=dataset.digest, training=work.digest)
        if work.manifest is None:
            stop_at_failures(config, target, None, dataset)
            track.used(dataset_artifact(built, target.name))
            if config.trainer.devices > 1:
                work.finish(_spread(config, work.path, built, stored, track))
            else:
                features = (stored.path, stored.manifest or {}) if stored else None
                start = head_tensors(first) if first else None
                work.finish(train_head(config, target, dataset, work.path, track, features, start))
    assert work.manifest is not None
    track.summary({f"held_out/{name}": value for name, value in work.manifest["metrics"].items()})
    return work


def _train_key(
    config: Config, target: LocatedTarget, dataset: Dataset, features: str | None, first: ExportedHead | None
) -> dict[str, Any]:
    """All that decides what a training makes. features: the digest of stored states."""
    trainer = {k: v for k, v in plain(config.trainer).items() if k not in WATCHING}
    for later in ("noise", "max_tokens"):
        if not trainer[later]:
            del trainer[later]  # a head trained before there was any is the same
    return {
        "format": TRAIN_FORMAT,
        "target": target.digest,
        "dataset": _content(dataset),
        **({"features": features} if features else {}),
        **({"init_head": first.digest} if first else {}),
        "trainer": trainer,
        "dtype": config.server.dtype,
        "seed": config.seed,
        **{name: plain(getattr(config, name)) for name in ("aux", "draft", "loss", "optim", "ops")},
    }


def known_head(config: Config) -> Path | None:
    """The newest export of the head that this config trains, if it is made already; nothing is made to find out."""
    from eagle_lab.config.digest import digest

    dataset = known_dataset(config)
    if dataset is None:
        return None
    target, features = locate_target(config), None
    if config.trainer.capture is Capture.stored:
        wanted = _features_key(config, target, dataset)
        if not (stage_path(outputs(config), "features", target.name, wanted) / MANIFEST).exists():
            return None
        features = digest(wanted)
    key = _train_key(config, target, dataset, features, first_head(config, target))
    return newest_export(stage_path(outputs(config), "heads", target.name, key))


def newest_export(trained: Path) -> Path | None:
    """Of a training's directory."""
    made = trained.glob(f"export/*/{MANIFEST}")
    return max((m.parent for m in made), key=lambda p: (p / MANIFEST).stat().st_mtime, default=None)


def _spread(config: Config, out: Path, built: Stage, stored: Stage | None, track: Tracker) -> dict[str, Any]:
    """train_head in trainer.devices processes."""
    from eagle_lab.train.checkpoints import CHECKPOINTS, newest
    from eagle_lab.train.launch import launched

    newest(out / CHECKPOINTS)  # puts a torn one aside before several processes look
    frozen = out / ".config.yaml"
    dump(config, frozen)
    asked = {"config": str(frozen), "dataset": str(built.path), "features": stored and str(stored.path)}
    try:
        return launched(config.trainer.devices, out, asked, track)
    finally:
        frozen.unlink(missing_ok=True)


def first_head(config: Config, target: LocatedTarget) -> ExportedHead | None:
    """The head of draft.init=head. LabError where its sizes or aux layers are not those that this config makes."""
    from eagle_lab.doctor.replay import shape_of
    from eagle_lab.draft.shape import head_shape

    if config.draft.init_head is None:
        return None
    first = given_head(head_directory("draft.init_head", config.draft.init_head))
    aux, where = resolve(config.aux, target.num_hidden_layers), f"draft.init_head={config.draft.init_head}"
    if first.aux_layers != aux:
        layers = ",".join(map(str, first.aux_layers))
        raise LabError(
            f"{where}: it reads aux layers {first.aux_layers}, this config {aux}. Use aux=explicit "
            f"'aux.layers=[{layers}]'."
        )
    its = asdict(shape_of(first.path))
    ours = asdict(head_shape(replace(config.draft, vocab_size=its["draft_vocab_size"]), target.config, len(aux)))
    if its != ours:
        name = next(n for n in its if its[n] != ours[n])
        raise LabError(f"{where}: its {name} is {its[name]}, this config makes {ours[name]}. Set draft.* to its sizes.")
    return first


def head_tensors(head: ExportedHead) -> dict[str, Tensor]:
    from eagle_lab.doctor.replay import shape_of
    from eagle_lab.export.sglang import read

    return read(head.path, shape_of(head.path))


def head_stage(config: Config, track: Tracker = NOWHERE) -> ExportedHead:
    """The exported and verified head that this config trains, or the one at `head`."""
    if config.head is not None:
        head, tell = given_head(head_directory("head", config.head)), track.used
    else:
        from eagle_lab.export.head_files import digest

        trained = train_stage(config, track)
        key = {"format": EXPORT_FORMAT, "head": trained.digest, "sglang": versions().get("sglang")}
        with stage(trained.path, "export", "sglang", key) as work:
            if work.manifest is None:
                work.finish(_export(trained, locate_target(config), work.path))
        assert trained.manifest is not None
        head = ExportedHead(work.path, digest(work.path), trained.manifest["aux_layers"], read_export(work.path))
        tell = track.used if work.reused else track.made
    track.link(dataset=head.facts.get("dataset_digest"), training=head.facts.get("train_digest"), head=head.digest)
    tell(head_artifact(head, config.target.name))
    return head


def dataset_artifact(built: Stage, target: str) -> Artifact:
    """The manifest alone: it names the data by digests, and the data may be nobody else's business."""
    assert built.manifest is not None
    facts = {k: v for k, v in built.manifest.items() if isinstance(v, int | float | str)}
    return Artifact("dataset", f"answers-{target}", built.digest, [built.path / "manifest.json"], facts)


def head_artifact(head: ExportedHead, target: str) -> Artifact:
    """What is served, with the digests of all that it was made from (null where its maker did not say)."""
    from eagle_lab.export.head_files import weight_files

    names = ("target_digest", "dataset_digest", "train_digest", "aux_layers", "git_sha")
    served = read_head(head.path).get("eagle_config") or {}
    metadata = {
        **{name: head.facts.get(name) for name in names},
        "sglang_aux_layers": served.get("eagle_aux_hidden_state_layer_ids"),
        "export_digest": head.digest,
    }
    files = [head.path / "config.json", *weight_files(head.path)]
    files += [file for file in [head.path / "export.json"] if file.exists()]
    return Artifact("model", f"eagle3-{target}", head.digest, files, metadata)


def _export(trained: Stage, target: LocatedTarget, out: Path) -> dict[str, Any]:
    from eagle_lab.config.files import read_tensors
    from eagle_lab.draft.shape import HeadShape
    from eagle_lab.export.sglang import write
    from eagle_lab.export.verify import verify
    from eagle_lab.serve.launch import import_environment
    from eagle_lab.train.fit import HEAD_FILE, SAMPLE_FILE

    manifest = trained.manifest
    assert manifest is not None
    shape = HeadShape(**manifest["shape"])
    facts = {
        "target": target.name,
        "target_digest": target.digest,
        "target_architecture": target.architecture,
        "num_hidden_layers": target.num_hidden_layers,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "aux_layers": manifest["aux_layers"],
        "dataset_digest": manifest["key"]["dataset"][0],
        "train_digest": trained.digest,
        "git_sha": provenance()["git_sha"],
        "held_out_cumulative": [v for k, v in manifest["metrics"].items() if k.startswith("cumulative_")],
    }
    again = f"Remove {trained.path} to train it again."
    write(out, read_tensors(trained.path / HEAD_FILE, again), shape, manifest["aux_layers"], target.config, facts)
    sample = read_tensors(trained.path / SAMPLE_FILE, again)
    found = verify(out, target.path, shape, sample, import_environment(os.environ))
    return {**facts, "verified": found}


def given_head(path: Path) -> ExportedHead:
    """A head directory named by the user; LabError when it is not one, or not whole."""
    from eagle_lab.export.head_files import check, digest

    check(path)
    facts = read_export(path)
    return ExportedHead(path.resolve(), digest(path), facts.get("aux_layers") or [], facts)
