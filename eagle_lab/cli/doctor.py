"""eagle-lab doctor: is this head whole, made for this target, served as trained; is this data fit to train on?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import expanded
from eagle_lab.config.schema import Config, SpecKind
from eagle_lab.doctor.finding import Finding, Level, Skipped, Verdict, ok

if TYPE_CHECKING:
    from eagle_lab.cli.stages import ExportedHead
    from eagle_lab.data.dataset import Dataset
    from eagle_lab.doctor.subject import Subject
    from eagle_lab.target.locate import LocatedTarget

PROMPTS = 8
SERVED = ("served as EAGLE-3", "training equals serving")
ELSEWHERE = "made elsewhere: no export.json says which layers it was trained on and that it is of our shape"
LABELS = {Level.fail: "FAIL"}


def run(config: Config, out: Path) -> int:
    from eagle_lab.cli.stages import head_stage, known_dataset, locate_target
    from eagle_lab.doctor.head_directory import HeadDirectory
    from eagle_lab.doctor.registry import CHECKS, diagnosis, examine
    from eagle_lab.doctor.subject import Subject

    target = locate_target(config)
    given = expanded("head", config.head) if config.head is not None else head_stage(config).path
    subject = Subject(config, HeadDirectory(given), target, known_dataset(config))
    verdicts = examine(subject)
    of_data = {check.NAME for check in CHECKS if "dataset" in check.NEEDS}
    of_head = [v for v in failing(config, verdicts) if v.check not in of_data]
    verdicts += _served(config, subject, of_head, out)
    if config.doctor.json:
        print(json.dumps([v.row() for v in verdicts], ensure_ascii=False))
    else:
        Console().print(_table(str(given), verdicts))
        for number, v in enumerate(diagnosis(verdicts), 1):
            print(f"{number}. {v.check}: {_said(v.finding)}")
    return 1 if failing(config, verdicts) else 0


def failing(config: Config, verdicts: list[Verdict]) -> list[Verdict]:
    """The failures that doctor.ignore does not name. LabError for a name that is no check's."""
    from eagle_lab.doctor.registry import CHECKS

    known = {*(check.NAME for check in CHECKS), *SERVED}
    if unknown := [name for name in config.doctor.ignore if name not in known]:
        raise LabError(f"doctor.ignore: no check is called {', '.join(unknown)}. There are {', '.join(sorted(known))}.")
    return [v for v in verdicts if v.level is Level.fail and v.check not in config.doctor.ignore]


def stop_at_failures(config: Config, target: LocatedTarget, head: Path | None, dataset: Dataset | None) -> None:
    """What can be told before a GPU is used. LabError, most likely cause first, for what doctor.ignore leaves."""
    from eagle_lab.doctor.head_directory import HeadDirectory
    from eagle_lab.doctor.registry import diagnosis, examine
    from eagle_lab.doctor.subject import Subject

    subject = Subject(config, HeadDirectory(head) if head else None, target, dataset)
    left = failing(config, diagnosis(examine(subject)))
    if left:
        first, *others = left
        more = f" Also failing: {', '.join(v.check for v in others)}." if others else ""
        where = head or f"dataset {config.data.name}"
        raise LabError(
            f"{where}: {first.check}: {_said(first.finding)}.{more} `eagle-lab doctor` shows all; to go on in spite of "
            f"it, doctor.ignore='[{','.join(v.check for v in left)}]'."
        )


def _said(f: Finding) -> str:
    wanted = f"; wanted: {f.wanted}" if f.wanted else ""
    return f"{f.found}{wanted}" + (f". {f.fix[0].upper()}{f.fix[1:]}" if f.fix else "")


def _served(config: Config, subject: Subject, failed: list[Verdict], out: Path) -> list[Verdict]:
    """The checks that start a server: none for a head that fails, which it would refuse or serve as noise."""
    from eagle_lab.cli.stages import given_head

    why = None
    if failed:
        why = "no server was started for a head that fails above"
    elif config.spec.kind is not SpecKind.chain:
        why = "a server is asked with spec=chain_5 or another chain only"
    if why:
        return [Verdict(name, Finding(Level.skipped, why)) for name in SERVED]
    found = []
    for name, check in zip(SERVED, (_probe, _replay), strict=True):
        try:
            found.append(Verdict(name, ok(check(config, subject.its_target, given_head(subject.given.path), out))))
        except LabError as e:
            found.append(Verdict(name, Finding(Level.fail, str(e))))
        except Skipped as e:
            found.append(Verdict(name, Finding(Level.skipped, str(e))))
    return found


def _table(title: str, verdicts: list[Verdict]) -> Table:
    # the title and what is found hold paths, which may look like markup
    table = Table(title=Text(title))
    for column in ("check", "verdict", "found", "wanted", "fix"):
        table.add_column(column, overflow="fold")
    for v in verdicts:
        f = v.finding
        label = LABELS.get(f.level, f.level.value)
        table.add_row(v.check, label, Text(f.found), Text(f.wanted), Text(f.fix))
    return table


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
