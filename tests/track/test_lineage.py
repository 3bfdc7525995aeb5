"""dataset -> run -> head -> evaluation: who made what, from what."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from hydra import compose, initialize_config_dir

from eagle_lab.cli import stages
from eagle_lab.config import load
from eagle_lab.config.digest import file_digest
from eagle_lab.config.paths import conf_dir
from eagle_lab.config.stage import Stage
from eagle_lab.track.tracker import NullTracker
from tests.track.conftest import FACTS, write_head


class Recorder(NullTracker):
    def __init__(self) -> None:
        self.lineage, self.made_, self.used_ = {}, [], []

    def link(self, **digests):
        self.lineage |= digests

    def made(self, artifact):
        self.made_.append(artifact)

    def used(self, artifact):
        self.used_.append(artifact)


def config(tmp_path: Path, *overrides: str):
    load.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return load.load(
            compose("run", ["target=tiny", "draft.vocab_size=256", f"paths.outputs={tmp_path}", *overrides])
        )


def expected(head: Path) -> dict:
    return {**FACTS, "sglang_aux_layers": [1, 3, 4], "export_digest": digest(head)}


def digest(head: Path) -> str:
    return file_digest(head / "config.json", head / "model.safetensors")


def test_a_given_head_is_an_input(tmp_path, head):
    track = Recorder()
    stages.head_stage(config(tmp_path, f"head={head}"), track)
    (artifact,) = track.used_
    assert track.made_ == []
    assert (artifact.type, artifact.name, artifact.digest) == ("model", "eagle3-tiny", digest(head))
    assert artifact.metadata == expected(head)
    assert [file.name for file in artifact.files] == ["config.json", "model.safetensors", "export.json"]
    assert track.lineage == {"dataset": "d" * 16, "training": "a" * 16, "head": digest(head)}


def test_a_head_of_another_maker_has_the_digests_that_can_be_known(tmp_path, head):
    (head / "export.json").unlink()
    track = Recorder()
    stages.head_stage(config(tmp_path, f"head={head}"), track)
    (artifact,) = track.used_
    assert artifact.metadata == dict.fromkeys(FACTS) | {
        "sglang_aux_layers": [1, 3, 4],
        "export_digest": digest(head),
    }
    assert track.lineage == {"dataset": None, "training": None, "head": digest(head)}


def test_who_exports_a_head_makes_it_and_who_finds_it_uses_it(tmp_path, monkeypatch):
    trained = Stage(tmp_path / "heads/tiny", {}, manifest={"aux_layers": [2, 4, 5]})
    monkeypatch.setattr(stages, "train_stage", lambda config, track: trained)
    monkeypatch.setattr(stages, "locate_target", lambda config: SimpleNamespace(name="tiny"))
    monkeypatch.setattr(stages, "_export", lambda trained, target, out: write_head(out) or {})
    first, second = Recorder(), Recorder()
    made = stages.head_stage(config(tmp_path), first)
    found = stages.head_stage(config(tmp_path), second)
    assert made == found
    assert first.made_ == second.used_
    assert (first.used_, second.made_) == ([], [])
    assert first.made_[0].metadata == expected(made.path)


def test_the_dataset_is_named_and_not_sent(tmp_path):
    facts = {"digest": "d" * 16, "rows": 7, "mask_ratio": 0.5, "tokens_digest": "b" * 16, "key": {"sources": []}}
    artifact = stages.dataset_artifact(Stage(tmp_path, {}, manifest=facts), "tiny")
    assert (artifact.type, artifact.name) == ("dataset", "answers-tiny")
    assert artifact.files == [tmp_path / "manifest.json"]
    assert artifact.metadata == {"digest": "d" * 16, "rows": 7, "mask_ratio": 0.5, "tokens_digest": "b" * 16}
