"""eagle-lab doctor: is this head whole, made for this target, loaded whole by SGLang, and served as EAGLE-3?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.schema import Config, ServerKind, SpecKind
from eagle_lab.doctor.checks import Verdict, run_checks

if TYPE_CHECKING:
    from eagle_lab.cli.stages import ExportedHead
    from eagle_lab.target.locate import LocatedTarget

PROMPTS = 8


def run(config: Config, out: Path) -> int:
    from eagle_lab.cli.stages import head_stage, locate_target

    if config.spec.kind is not SpecKind.chain:
        raise LabError("doctor replays a chain of drafts: add spec=chain_5 (or another chain).")
    target, head = locate_target(config), head_stage(config)
    verdicts = run_checks(
        {
            "tensors": lambda: _tensors(head),
            "made for this target": lambda: _pair(config, target, head),
            "served as EAGLE-3": lambda: _probe(config, target, head, out),
            "training equals serving": lambda: _replay(config, target, head, out),
        }
    )
    Console().print(_table(head, verdicts))
    return 0 if all(v.ok for v in verdicts) else 1


def _table(head: ExportedHead, verdicts: list[Verdict]) -> Table:
    table = Table(title=f"{head.path} ({head.digest})")
    for column in ("check", "verdict", "found"):
        table.add_column(column, overflow="fold")
    for v in verdicts:
        table.add_row(v.check, "ok" if v.ok else "FAIL", v.found)
    return table


def _tensors(head: ExportedHead) -> str:
    from eagle_lab.doctor.replay import shape_of
    from eagle_lab.export.sglang import read

    return f"{len(read(head.path, shape_of(head.path)))} tensors, all expected, finite, d2t and t2d agree"


def _pair(config: Config, target: LocatedTarget, head: ExportedHead) -> str:
    from eagle_lab.serve.pairing import check_pair

    check_pair(target.path, head.path, config.server.context_length, target.digest)
    return f"vocabulary, hidden size and positions fit {target.name}"


def _probe(config: Config, target: LocatedTarget, head: ExportedHead, out: Path) -> str:
    from eagle_lab.evaluate.heads import aux_width
    from eagle_lab.serve.launch import Launch
    from eagle_lab.serve.probe import probe

    width = aux_width(head.path, target.hidden_size)
    launch = Launch(target.path, config.server, config.spec, head.path, hidden_states=True)
    found = probe(launch, width, _prompts(config, target), out / "probe.log")
    return f"EAGLE3, aux states {found['captured_width']} wide"


def _prompts(config: Config, target: LocatedTarget) -> list[list[int]]:
    from eagle_lab.cli.stages import load_prompts
    from eagle_lab.evaluate.suites import first_prompts
    from eagle_lab.serve.chat import load_tokenizer

    return first_prompts(load_prompts(config), load_tokenizer(target.path), PROMPTS)


def _replay(config: Config, target: LocatedTarget, head: ExportedHead, out: Path) -> str:
    """Serves greedily, replays the same tokens by our own head, compares every request's histogram."""
    from eagle_lab.serve.launch import Launch
    from eagle_lab.serve.process import serving

    prompts = _prompts(config, target)
    server = replace(config.server, max_running_requests=max(config.server.max_running_requests, 2))
    with serving(Launch(target.path, server, config.spec, head.path), out / "replay.log") as client:
        done = client.generate(prompts, max_new_tokens=config.suite.max_new_tokens)
    requests: list[dict[str, Any]] = [
        {"prompt_ids": ids, "token_ids": c.token_ids, "histogram": c.histogram}
        for ids, c in zip(prompts, done, strict=True)
    ]
    return judge_replay(config, target, head, requests)


def judge_replay(config: Config, target: LocatedTarget, head: ExportedHead, requests: list[dict[str, Any]]) -> str:
    """Raises ServingFault when the server accepted other drafts than our head predicts over the same tokens."""
    import torch

    from eagle_lab.doctor.replay import load_head, replay
    from eagle_lab.evaluate.intervals import pooled_histogram
    from eagle_lab.target.model import TargetModel
    from eagle_lab.train.feed import document

    steps = config.spec.num_steps
    assert steps is not None
    model = TargetModel(target, head.aux_layers, device="cpu", dtype="float32")
    found = replay(
        load_head(head.path, model.embed_weight),
        requests,
        steps,
        lambda ids, start: document(model, ids, start, torch.device("cpu")),
        model.greedy,
    )
    served, predicted = pooled_histogram(r.served for r in found), pooled_histogram(r.predicted for r in found)
    text = f"{sum(r.equal for r in found)} of {len(found)} requests equal; served {served}, replayed {predicted}"
    if config.server.kind is ServerKind.cpu and not all(r.equal for r in found):
        raise ServingFault(
            f"{text}. In float32 they must be equal: the server does not compute what was trained. Compare aux layers, "
            "rope_parameters and the d2t of config.json and model.safetensors with the trained head's."
        )
    return text
