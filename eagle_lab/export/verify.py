"""Does SGLang's own model class load every tensor of an export, and compute what our head computes?"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.model_config import read_config
from eagle_lab.draft.head import Head
from eagle_lab.draft.shape import HeadShape
from eagle_lab.draft.unroll import one_document, unroll
from eagle_lab.export.sglang import read

# the only parameter that SGLang takes from the target instead of the export
FROM_TARGET = ["model.embed_tokens.weight"]
# of the largest logit. bf16: two rounding steps; a head of 4,096 wide on a target of random weights was 0.0148 of 1.88
# off on an H200, a hair over one. fp32: on an H200's host 15 heads were 2e-5 to 3.5e-5 off in logits; one of them was
# 1.6e-3 off at first and 1.9e-5 the next time, for a reason not found
TOLERANCE = {"float32": 1e-3, "bfloat16": 2**-6, "float16": 2e-3}


def verify(
    export: Path, target: Path, shape: HeadShape, sample: dict[str, Tensor], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Runs the export through SGLang's class and through ours on real tokens; returns what was found.

    sample: aux [S, A*H] and embeds [S, H] of one document's tokens; environment: lets `sglang` import here.
    Raises ServingFault when a tensor stays unloaded or the logits differ.
    """
    head = Head.with_tensors(shape, read(export, shape), sample["embeds"])
    theirs = through_sglang(export, target, sample, environment)
    return judge(export, first_logits(head, sample["aux"]), theirs, head)


class Theirs(NamedTuple):
    logits: Tensor
    """[S - 1, Vd] of the first draft step."""
    untouched: list[str]
    """Parameters that loading left as they were."""
    hot_token_id: Tensor
    """int64 [Vd]: target ids of the draft ids; empty where there is no map."""


def through_sglang(export: Path, target: Path, sample: dict[str, Tensor], environment: Mapping[str, str]) -> Theirs:
    """Loads a head with SGLang's class, whose parameters are filled with NaN before, and runs one pass of it."""
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder) / "inputs.safetensors", Path(folder) / "outputs.safetensors"
        given = {"embeds": sample["embeds"][1:], "aux": sample["aux"][:-1]}
        save_file({k: v.contiguous() for k, v in given.items()}, inputs)
        command = [sys.executable, "-m", "eagle_lab.export.sglang_check", *map(str, (export, target, inputs, outputs))]
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            tail = "\n".join(done.stderr.splitlines()[-15:])
            raise LabError(
                f"{export}: SGLang's model class could not be run on it. Is sglang installed (`make demo` shows how)? "
                f"Its last words:\n{tail}"
            )
        with safe_open(outputs, "pt") as f:
            untouched = json.loads(f.metadata()["untouched"])
            return Theirs(f.get_tensor("logits"), untouched, f.get_tensor("hot_token_id"))


@torch.no_grad()
def first_logits(head: Head, aux: Tensor) -> Tensor:
    """[S - 1, Vd] fp32: the logits of the first draft step at every position that has a next token.

    head.embed holds the embeddings of the document's own S tokens, in order.
    """
    document = one_document(torch.arange(len(head.embed)), aux.float())
    return head.lm_head(next(unroll(head, document, 1)))


def judge(export: Path, ours: Tensor, theirs: Theirs, head: Head) -> dict[str, Any]:
    """The verdict on one comparison; ours [N, Vd]: the logits of `head`."""
    config = read_config(export)
    dtype = config.get("dtype") or config.get("torch_dtype") or "float16"
    unloaded = [n for n in theirs.untouched if n not in FROM_TARGET]
    if unloaded:
        raise ServingFault(
            f"{export}: SGLang loads no value into {', '.join(unloaded)}: it would serve noise there, silently. "
            "The export misses these tensors or names them otherwise; export the head again."
        )
    mapped = head.target_ids(torch.arange(head.shape.draft_vocab_size, device=head.d2t.device)).cpu()
    whole = not theirs.hot_token_id.numel() and torch.equal(mapped, torch.arange(head.shape.vocab_size))
    if not whole and not torch.equal(theirs.hot_token_id, mapped):
        raise ServingFault(f"{export}: SGLang reads another draft vocabulary than the head's d2t. Export it again.")
    worst = float((ours - theirs.logits).abs().max())
    allowed = TOLERANCE[dtype] * float(ours.abs().max())
    if not worst <= allowed:
        raise ServingFault(
            f"{export}: SGLang's logits differ from the trained head's by up to {worst:.3g} (allowed "
            f"{allowed:.3g} in {dtype}). Compare rope_parameters, rms_norm_eps and head_dim in config.json with "
            "the target's."
        )
    agree = float((ours.argmax(-1) == theirs.logits.argmax(-1)).float().mean())
    found = {"positions": len(ours), "max_logit_difference": worst, "argmax_agreement": agree}
    return {**found, "untouched": theirs.untouched}
