"""Heads as they come: whole, sharded, pickled, torn, edited, empty."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from eagle_lab.config.digest import file_digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.stage import stage
from eagle_lab.export import sglang
from eagle_lab.export.head_files import check, digest, load, weight_files
from tests.draft.conftest import SHAPE
from tests.export.test_sglang import TARGET, tensors


@pytest.fixture
def head(tmp_path):
    sglang.write(tmp_path / "head", tensors(), SHAPE, [2, 4, 5], TARGET, {"target_digest": "x"})
    return tmp_path / "head"


def reshaped(head, how):
    """The same weights as other trainers ship them."""
    held = tensors()
    (head / "model.safetensors").unlink()
    if how == "sharded":
        names = sorted(held)
        shards = {"model-1-of-2.safetensors": names[:5], "model-2-of-2.safetensors": names[5:]}
        for shard, part in shards.items():
            save_file({n: held[n].contiguous() for n in part}, head / shard)
        index = {"weight_map": {n: shard for shard, part in shards.items() for n in part}}
        (head / "model.safetensors.index.json").write_text(json.dumps(index))
        # SGLang reads none that the index does not name
        save_file({"fc.weight": torch.zeros(1)}, head / "consolidated.safetensors")
    elif how == "renamed":
        foreign = {f"model.{n.replace('midlayer', 'layers.0')}": t for n, t in held.items() if n != "t2d"}
        save_file(foreign | {"model.embed_tokens.weight": torch.zeros(40, 16)}, head / "model.safetensors")
    else:
        zipped = how == "pickled"
        torch.save(held, head / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
        torch.save({"lr": 1}, head / "training_args.bin")
    return head


@pytest.mark.parametrize("how", ["sharded", "renamed", "pickled", "pickled long ago"])
def test_a_whole_head_by_any_trainer(head, how):
    assert check(head) == f"{len(tensors())} tensors in model.safetensors"
    assert digest(head) == file_digest(head / "config.json", head / "model.safetensors")
    check(reshaped(head, how))
    found = load(head)
    assert all(torch.equal(found[n], t) for n, t in tensors().items() if n in found)
    assert tensors().keys() - found.keys() <= {"t2d"}
    assert digest(head) == file_digest(head / "config.json", *weight_files(head))


@pytest.mark.parametrize("how", ["sharded", "renamed", "pickled", "pickled long ago"])
@pytest.mark.parametrize("left", [0, 10, -10])
def test_torn_weights(head, how, left):
    reshaped(head, how)
    file = weight_files(head)[-1]
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(LabError, match=f"{file}: not a whole .*Export or download the head again"):
        check(head)


def test_a_missing_tensor_is_named(head):
    save_file(
        {n: t for n, t in tensors().items() if "up_proj" not in n and n != "fc.weight"}, head / "model.safetensors"
    )
    with pytest.raises(LabError, match=r"no fc\.weight, midlayer\.mlp\.up_proj\.weight"):
        check(head)


def test_shards(head):
    reshaped(head, "sharded")
    (head / "model-1-of-2.safetensors").unlink()
    with pytest.raises(LabError, match=r"index\.json names model-1-of-2\.safetensors, not there"):
        check(head)
    (head / "model.safetensors.index.json").write_text('{"weight_map": ["fc.weight"]}')
    with pytest.raises(LabError, match=r"index\.json: weight_map="):
        check(head)


@pytest.mark.parametrize("content", [[1, 2], {"state_dict": {"fc.weight": 1}}, torch.zeros(3)])
def test_a_pickle_of_something_else(head, content):
    reshaped(head, "pickled")
    torch.save(content, head / "pytorch_model.bin")
    with pytest.raises(LabError, match=r"pytorch_model\.bin: no name -> tensor table"):
        check(head)


def test_places_without_a_head(head, tmp_path):
    (head / "model.safetensors").unlink()
    with pytest.raises(LabError, match=r"no \*\.safetensors or \*\.bin weights there"):
        check(head)
    with pytest.raises(LabError, match="gone: no such directory"):
        check(tmp_path / "gone")
    with pytest.raises(LabError, match=r"config\.json: a file"):
        check(head / "config.json")


def test_an_export_that_was_edited_is_not_the_one_that_was_verified(tmp_path):
    with stage(tmp_path, "export", "sglang", {}) as work:
        sglang.write(work.path, tensors(), SHAPE, [2, 4, 5], TARGET, {"target_digest": "x"})
        work.finish({})
    check(work.path)
    copy = shutil.copytree(work.path, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "rope_theta": 1.0}))
    with pytest.raises(LabError, match=r"config\.json: .* expected\..*remove .*/copy/manifest\.json"):
        check(copy)
    (copy / "manifest.json").unlink()
    check(copy)
