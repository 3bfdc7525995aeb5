"""eagle-lab doctor: is this head whole, made for this target, loaded whole by SGLang, and served as EAGLE-3?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from eagle_lab.config.errors import LabError
from eagle_lab.config.model_config import read_export
from eagle_lab.config.paths import expanded
from eagle_lab.config.schema import Config, SpecKind
from eagle_lab.doctor.checks import Skipped, Verdict, run_checks

if TYPE_CHECKING:
    from eagle_lab.cli.stages import ExportedHead
    from eagle_lab.target.locate import LocatedTarget

PROMPTS = 8
SERVED = ("served as EAGLE-3", "training equals serving")
ELSEWHERE = "made elsewhere: no export.json says which layers it was trained on and that it is of our shape"


def run(config: Config, out: Path) -> int:
    from eagle_lab.cli.stages import given_head, head_stage, locate_target
    from eagle_lab.export.head_files import check

    if config.spec.kind is not SpecKind.chain:
        raise LabError("doctor replays a chain of drafts: add spec=chain_5 (or another chain).")
    target = locate_target(config)
    given = expanded("head", config.head) if config.head is not None else head_stage(config).path
    verdicts = run_checks(
        {
            "files": lambda: check(given),
            "tensors": lambda: _tensors(given),
            "made for this target": lambda: _pair(config, target, given),
        }
    )
    if any(v.ok is False for v in verdicts):
        # a server would refuse it, or serve noise
        verdicts += [Verdict(name, None, "no server was started for a head that fails above") for name in SERVED]
        title = str(given)
    else:
        head = given_head(given)
        served = (lambda: _probe(config, target, head, out), lambda: _replay(config, target, head, out))
        verdicts += run_checks(dict(zip(SERVED, served, strict=True)))
        title = f"{head.path} ({head.digest})"
    Console().print(_table(title, verdicts))
    return 1 if any(v.ok is False for v in verdicts) else 0


def _table(title: str, verdicts: list[Verdict]) -> Table:
    # the title and what is found hold paths, which may look like markup
    table = Table(title=Text(title))
    for column in ("check", "verdict", "found"):
        table.add_column(column, overflow="fold")
    for v in verdicts:
        table.add_row(v.check, {True: "ok", False: "FAIL", None: "skipped"}[v.ok], Text(v.found))
    return table


def _tensors(head: Path) -> str:
    from eagle_lab.doctor.replay import shape_of
    from eagle_lab.export.sglang import read

    if not read_export(head):
        raise Skipped(ELSEWHERE)
    return f"{len(read(head, shape_of(head)))} tensors, all expected, finite, d2t and t2d agree"


def _pair(config: Config, target: LocatedTarget, head: Path) -> str:
    from eagle_lab.serve.pairing import check_pair

    check_pair(target.path, head, config.server.context_length, target.digest)
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
    from eagle_lab.cli.expectation import judge_replay
    from eagle_lab.serve.launch import Launch
    from eagle_lab.serve.process import serving

    if not head.aux_layers:
        raise Skipped(ELSEWHERE)
    prompts = _prompts(config, target)
    server = replace(config.server, max_running_requests=max(config.server.max_running_requests, 2))
    with serving(Launch(target.path, server, config.spec, head.path), out / "replay.log") as client:
        done = client.generate(prompts, max_new_tokens=config.suite.max_new_tokens)
    requests: list[dict[str, Any]] = [
        {"prompt_ids": ids, "token_ids": c.token_ids, "histogram": c.histogram}
        for ids, c in zip(prompts, done, strict=True)
    ]
    return judge_replay(config, target, head, requests)
