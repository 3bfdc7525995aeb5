import json

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.data.build import build
from eagle_lab.data.dataset import load


@pytest.fixture
def made(client, configured, jsonl, target, tmp_path):
    rows = ({"turns": [f"Tell me about number {i}"]} for i in range(8))
    return build(configured(jsonl(*rows), holdout=0.25), target, tmp_path)


def test_rows_slices_and_indices(made):
    dataset = load(made.path)
    lines = [json.loads(line) for line in (made.path / "rows.jsonl").read_text().splitlines()]
    assert dataset.digest == made.digest
    assert sorted([*dataset.train.indices, *dataset.holdout.indices]) == list(range(8))
    for rows, held in ((dataset.train, False), (dataset.holdout, True)):
        for at, row in enumerate(rows):
            line = lines[rows.indices[at]]
            assert (len(row.input_ids), len(row.answer_ids), held) == (
                line["tokens"],
                line["supervised"],
                line["holdout"],
            )
    head = dataset.train[:2]
    assert len(head) == 2
    assert [r.input_ids.tolist() for r in head] == [dataset.train[i].input_ids.tolist() for i in (0, 1)]
    assert dataset.rows[-1].input_ids.tolist() == dataset.rows[7].input_ids.tolist()
    with pytest.raises(IndexError):
        dataset.train[99]
    assert len(dataset.train[:0].answer_ids()) == 0


def test_a_cut_holds_so_many_supervised_tokens_and_every_smaller_one(made):
    dataset = load(made.path)
    sizes = [len(row.answer_ids) for row in dataset.train]
    cuts = {n: dataset.cut(n) for n in (1, sum(sizes) // 2, sum(sizes))}
    for tokens, cut in cuts.items():
        kept = [len(row.answer_ids) for row in cut.train]
        assert tokens <= sum(kept) < tokens + max(sizes)
        assert cut.holdout is dataset.holdout
    small, half, whole = (set(cut.train.indices.tolist()) for cut in cuts.values())
    assert small < half < whole == set(dataset.train.indices.tolist())
    assert dataset.cut(None) is dataset
    with pytest.raises(LabError, match=rf"max_tokens={sum(sizes) + 1}: the dataset has {sum(sizes)} supervised tokens"):
        dataset.cut(sum(sizes) + 1)


def test_an_unfinished_or_changed_dataset_is_refused(made, tmp_path):
    with pytest.raises(LabError, match="no finished dataset"):
        load(tmp_path)
    file = made.path / "tokens.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(LabError, match=rf"tokens\.safetensors: {len(raw)} bytes .* expected\. Remove"):
        load(made.path)
    file.unlink()
    with pytest.raises(LabError, match="no file found"):
        load(made.path)
