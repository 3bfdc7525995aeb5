"""`python -m tests.doctor.prove`: every fault of the corpus on the real CPU server; what happened goes to docs/results.

Our own launcher refuses most of them before a server starts; here it is told not to look.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Config, Server, ServerKind, Spec, SpecKind, Target, TargetKind
from eagle_lab.doctor import served
from eagle_lab.doctor.head_directory import HeadDirectory
from eagle_lab.doctor.registry import FILES, SERVED, diagnosis, examine
from eagle_lab.doctor.replay import shape_of
from eagle_lab.doctor.subject import Subject
from eagle_lab.export.sglang import read, write
from eagle_lab.serve import launch as launching
from eagle_lab.serve import process, running
from eagle_lab.serve.chat import load_tokenizer, prompt_ids
from eagle_lab.serve.client import Completion
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.process import serving
from eagle_lab.target.locate import LocatedTarget, locate
from tests.doctor.corpus import FAULTS, SERVER_FAULTS, Fault, ServerFault, changed
from tests.known_acceptance import AUX, CPU, known_pair

TABLE = Path(__file__).resolve().parents[2] / "docs/results/doctor_served.jsonl"
MESSAGES = [{"role": "user", "content": "hello"}]
TOKENS = 40
RIGHT = "none"
NOT_HERE = ("loaded weights",)
"""Takes a process of its own for each fault; it has its own test."""


@dataclass(frozen=True)
class Good:
    target: LocatedTarget
    head: Path
    server: Server
    prompts: list[list[int]]

    def launch(self, head: Path | None = None) -> Launch:
        spec = Spec(SpecKind.chain, num_draft_tokens=4)
        return Launch(self.target.path, self.server, spec, head or self.head, hidden_states=True)


def good(root: Path) -> Good:
    """target=known_acceptance, but each layer turns t's state into that of t + 1: no layer serves for another.

    The exact head turns back what its first aux layer is ahead.
    """
    known, exact = known_pair(root)
    path, shape = shutil.copytree(known.path, root / "turning"), shape_of(exact)
    weights, head = load_file(path / "model.safetensors"), read(exact, shape)
    layers = known.num_hidden_layers
    for i in range(layers):
        for name in ("gate_proj", "up_proj", "down_proj"):
            weights[f"model.layers.{i}.mlp.{name}.weight"] = head[f"midlayer.mlp.{name}.weight"].clone()
    weights["lm_head.weight"] = weights["lm_head.weight"].roll(-layers, 0)
    save_file({k: w.contiguous() for k, w in weights.items()}, path / "model.safetensors", metadata={"format": "pt"})
    e = weights["model.embed_tokens.weight"].double()
    back = torch.linalg.lstsq(e, e.roll(AUX[0], 0), driver="gelsd").solution.T
    head = {k: w.clone() for k, w in head.items()}
    # with the other sign: EAGLE, which hands the target's last state to the layer and the drafts to the target's
    # lm_head, would draft without a fault otherwise
    head["fc.weight"][:, : shape.hidden_size] = -back
    for name in ("midlayer.mlp.gate_proj.weight", "lm_head.weight"):
        head[name] = -head[name]
    target = locate(Target(name="turning", kind=TargetKind.hf, path=str(path)), root)
    facts = {"target_digest": target.digest, "target_architecture": target.architecture, "aux_layers": AUX}
    write(root / "good", head, shape, AUX, target.config, facts)
    prompts = [[309, 308, 261, 307], [100, 101, 102], [33, 34], [200, 201]]
    rendered = prompt_ids(load_tokenizer(target.path), MESSAGES)
    server = replace(CPU, start_timeout_s=300.0, request_timeout_s=60.0)
    return Good(target, root / "good", server, [rendered, *prompts])


@contextmanager
def as_typed(change: Callable[[list[str]], list[str]] = list, **environment: str) -> Iterator[None]:
    """Servers are started by this command and environment, and no question is asked."""
    argv, settings = launching.argv, launching.environment
    with (
        mock.patch.object(launching, "check", return_value=None),
        mock.patch.object(running, "check", return_value=None),
        mock.patch.object(process, "argv", lambda launch, port: change(argv(launch, port))),
        mock.patch.object(process, "environment", lambda *a: {**settings(*a), **environment}),
    ):
        yield


def accept_length(done: list[Completion]) -> float:
    steps = sum(d.verify_ct for d in done)
    return 1 + sum(d.correct_drafts for d in done) / steps if steps else 1.0


def head_fault(good: Good, fault: Fault, folder: Path) -> dict[str, Any]:
    """What doctor says first of a faulty head's files, whether a server starts with it, and what it accepts."""
    head = changed(good.head, folder, fault.plant)
    subject = Subject(Config(name="prove", server=good.server), HeadDirectory(head), good.target)
    named = [v.check for v in diagnosis(examine(subject, FILES))]
    row: dict[str, Any] = {"kind": "head", "fault": fault.name, "named": named[0] if named else None}
    try:
        with as_typed(), serving(good.launch(head), folder / "server.log") as client:
            return row | {"accept_length": accept_length(client.generate(good.prompts, max_new_tokens=TOKENS))}
    except LabError:
        return row | {"accept_length": None}


def server_fault(good: Good, fault: ServerFault, folder: Path) -> dict[str, Any]:
    """The same of a server that was started wrongly, and is asked by its URL."""
    right = good.launch()
    wrong = as_typed(lambda words: fault.words(words, good.target.path, folder), **fault.environment)
    with wrong, serving(right, folder / "server.log") as client:
        server = replace(good.server, kind=ServerKind.url, url=client.base_url)
        config = Config(name="prove", server=server, spec=right.spec)
        subject = Subject(config, HeadDirectory(good.head), good.target)
        try:
            answered = served.ask(replace(right, server=server), good.prompts, MESSAGES, TOKENS, folder)
            subject = replace(subject, served=answered)
        except LabError as e:
            subject = replace(subject, unserved=str(e), missing={"served": "another server"})
        found = accept_length(client.generate(good.prompts, max_new_tokens=TOKENS))
    named = [v.check for v in diagnosis(examine(subject, [c for c in SERVED if c.NAME not in NOT_HERE]))]
    return {"kind": "server", "fault": fault.name, "named": named[0] if named else None, "accept_length": found}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = good(root)
        rows = [server_fault(made, ServerFault(RIGHT, "", ""), root / "right")]
        for number, fault in enumerate((*FAULTS, *SERVER_FAULTS)):
            into = root / str(number)
            into.mkdir()
            rows.append(head_fault(made, fault, into) if isinstance(fault, Fault) else server_fault(made, fault, into))
            sys.stdout.write(json.dumps(rows[-1]) + "\n")
            sys.stdout.flush()
    TABLE.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
