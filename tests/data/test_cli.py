"""cli/data.py: what the verb prints."""

import pytest

from eagle_lab.cli import features
from eagle_lab.cli.data import run
from eagle_lab.cli.stages import train_stage
from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Capture
from eagle_lab.disk import inventory
from eagle_lab.disk.references import References


def test_the_verb_builds_and_shows_the_dataset(client, configured, jsonl, tmp_path, capsys):
    rows = [{"turns": [f"Tell me about [bold]number {i}"]} for i in range(8)]
    config = configured(jsonl(*rows, rows[0]), holdout=0.25)
    config.paths.outputs = str(tmp_path / "out")
    config.draft.vocab_size = 64
    assert run(config, tmp_path) == 0
    printed = capsys.readouterr().out
    for words in ("dataset for tiny", "dropped: duplicate prompt", "2 rows of 2", "covered by 64", "train 100.00%"):
        assert words in printed
    # the text of a row is shown as it is, markup-like brackets and special tokens included
    assert "<|turn|>user\nTell me about [bold]number" in printed
    assert "made:" in printed
    assert run(config, tmp_path) == 0
    assert "found:" in capsys.readouterr().out
    assert client.starts == 1


def test_a_draft_vocabulary_larger_than_the_target_is_refused(client, configured, jsonl, tmp_path):
    config = configured(jsonl({"turns": ["Tell me"]}, {"turns": ["Tell me more"]}))
    config.paths.outputs = str(tmp_path / "out")
    config.draft.vocab_size = 513
    with pytest.raises(LabError, match=r"draft\.vocab_size=513"):
        run(config, tmp_path)


def test_features_are_captured_once_and_trained_from(client, configured, jsonl, tmp_path, capsys):
    config = configured(jsonl(*({"turns": [f"Tell me about number {i}"]} for i in range(8))))
    config.paths.outputs = str(tmp_path / "out")
    config.draft.vocab_size = 64
    config.loss.unroll_steps = 2
    config.trainer.accelerator, config.trainer.capture = "cpu", Capture.stored
    config.optim.optimizer = {"_target_": "torch.optim.AdamW", "lr": 1e-3}
    assert features.run(config, tmp_path) == 0
    made = capsys.readouterr().out
    assert "aux layers [" in made
    assert "in 1 shard(s)" in made
    trained = train_stage(config)
    assert features.run(config, tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1].replace("found", "made") == made.splitlines()[-1]

    found = inventory.outputs(tmp_path / "out")
    (entry,) = (e for e in found.stages if e.kind == "features")
    assert not any(e.foreign for e in found.stages)
    assert trained.manifest["key"]["features"] == entry.manifest["digest"]
    head = next(e for e in found.stages if e.kind == "heads")
    assert entry in References(found)._needs(head)
