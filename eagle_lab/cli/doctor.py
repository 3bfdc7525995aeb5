"""eagle-lab doctor: is this head whole, made for this target, served as trained; is this data fit to train on?"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from eagle_lab.config.errors import LabError
from eagle_lab.config.paths import head_directory
from eagle_lab.config.schema import Config, Engine, ServerKind, Spec, SpecKind
from eagle_lab.doctor.finding import Finding, Level, Verdict
from eagle_lab.serve.client import Client

if TYPE_CHECKING:
    from eagle_lab.data.dataset import Dataset
    from eagle_lab.doctor.subject import Subject
    from eagle_lab.target.locate import LocatedTarget

PROMPTS = 8
ORDER = (Level.fail, Level.warn, Level.ok, Level.skipped)
LABELS = {Level.fail: "FAIL"}


def run(config: Config, out: Path) -> int:
    from eagle_lab.cli.stages import known_dataset, locate_target
    from eagle_lab.doctor.head_directory import HeadDirectory
    from eagle_lab.doctor.registry import FILES, SERVED, examine
    from eagle_lab.doctor.subject import Subject

    target, given = locate_target(config), _given(config)
    head = HeadDirectory(given, config.doctor.engine) if given else None
    subject = Subject(config, head, target, known_dataset(config))
    verdicts = examine(subject, FILES)
    of_data = {check.NAME for check in FILES if "dataset" in check.NEEDS}
    failed = [v for v in failing(config, verdicts) if v.check not in of_data]
    if failed:
        why_not = "no server was started for a head that fails above"
    else:
        fails = any(v.level is Level.fail for v in verdicts)  # and is ignored
        _tell(f"of files and data {'what fails is ignored' if fails else 'nothing fails'} ({_counted(verdicts)})")
        why_not = None
    served = _served(config, subject, out, why_not)
    verdicts += examine(served, SERVED)
    if config.doctor.json:
        print(json.dumps([v.row() for v in verdicts], ensure_ascii=False))
    else:
        _print(config, verdicts, given, None if failed else served.missing.get("served"))
        if config.doctor.views and head:
            _print_views(subject)
    return 1 if failing(config, verdicts) else 0


def _print(config: Config, verdicts: list[Verdict], given: Path | None, unasked: str | None) -> None:
    """unasked: why the checks of a server were left out, where that is not for a failure."""
    from eagle_lab.doctor.registry import diagnosis

    ranked = [f"{n}. {_line(config, v)}" for n, v in enumerate(diagnosis(verdicts), 1)]
    warned = [f"warning: {_line(config, v)}" for v in verdicts if v.level is Level.warn]
    print(str(given or "no head is given, and the one that this config trains is not made yet"))
    checked = any(v.level is not Level.skipped for v in verdicts)
    nothing = "nothing could be checked" if not checked else "nothing fails"
    if given and unasked and not ranked:
        nothing += f" in its files; how it is served was not looked at: {unasked}"
    if warned:
        nothing += f"; {len(warned)} warning{'s' * (len(warned) > 1)}"
    print("\n".join([*(ranked or [nothing]), *warned]))
    Console().print(_table(sorted(verdicts, key=lambda v: ORDER.index(v.level))))
    print(_counted(verdicts) + (f". {ranked[0]}" if ranked else ""))


def _line(config: Config, v: Verdict) -> str:
    ignored = " (ignored: doctor.ignore)" if v.level is Level.fail and v.check in config.doctor.ignore else ""
    return f"{v.check}{ignored}: {_said(v.finding)}"


def _counted(verdicts: list[Verdict]) -> str:
    count = Counter(v.level for v in verdicts)
    return ", ".join(f"{count[level]} {level.value}" for level in ORDER)


def _given(config: Config) -> Path | None:
    """The directory of `head` (a training's: its newest export), of the server that runs, or of this config's head."""
    from eagle_lab.cli.stages import known_head

    if config.head is not None:
        return head_directory("head", config.head)
    if config.server.kind is ServerKind.url:
        client = Client.at(config.server)
        named = client.info().get("speculative_draft_model_path")
        if isinstance(named, str) and Path(named).is_dir():
            return Path(named)
        raise LabError(f"{client.base_url} drafts with {named}, no directory of this machine. Give its files as head=.")
    return known_head(config)


def failing(config: Config, verdicts: list[Verdict]) -> list[Verdict]:
    """The failures that doctor.ignore does not name. LabError for a name that is no check's."""
    from eagle_lab.doctor.registry import CHECKS

    known = {check.NAME for check in CHECKS}
    if unknown := [name for name in config.doctor.ignore if name not in known]:
        raise LabError(f"doctor.ignore: no check is called {', '.join(unknown)}. There are {', '.join(sorted(known))}.")
    return [v for v in verdicts if v.level is Level.fail and v.check not in config.doctor.ignore]


def stop_at_failures(config: Config, target: LocatedTarget, head: Path | None, dataset: Dataset | None) -> None:
    """What can be told before a GPU is used. LabError, most likely cause first, for what doctor.ignore leaves.

    By SGLang, which is what these points are served with, whatever doctor.engine says.
    """
    from eagle_lab.doctor.head_directory import HeadDirectory
    from eagle_lab.doctor.registry import FILES, diagnosis, examine
    from eagle_lab.doctor.subject import Subject

    config = replace(config, doctor=replace(config.doctor, engine=Engine.sglang))
    subject = Subject(config, HeadDirectory(head) if head else None, target, dataset)
    left = failing(config, diagnosis(examine(subject, FILES)))
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


def _served(config: Config, subject: Subject, out: Path, why_not: str | None) -> Subject:
    """With what a server answers; it is not started for a head that fails, which it would refuse or serve as noise."""
    from eagle_lab.cli.stages import load_prompts
    from eagle_lab.doctor.served import ask
    from eagle_lab.evaluate.measure import label
    from eagle_lab.evaluate.suites import first_prompts
    from eagle_lab.serve.chat import load_tokenizer, messages
    from eagle_lab.serve.launch import Launch

    if config.doctor.engine is Engine.vllm:
        why_not = "a vLLM server is not started here"
    if subject.head is None:
        why_not = "no head is given"
    unanswered = {"served": "no server answers as it was asked to"}
    try:
        spec = config.spec if why_not else _asked_spec(config)
    except LabError as e:
        return replace(subject, unserved=str(e), missing=unanswered)
    if why_not is None and spec.kind is not SpecKind.chain:
        why_not = f"a server is asked about a chain only, this is {label(spec)}: add spec=chain_5"
    if why_not:
        return replace(subject, missing={"served": why_not})
    target, prompts = subject.its_target, load_prompts(config)
    ids = first_prompts(prompts, load_tokenizer(target.path), PROMPTS)
    server = replace(config.server, max_running_requests=max(config.server.max_running_requests, 2))
    launch = Launch(target.path, server, spec, subject.given.path, hidden_states=True)
    first = messages(prompts.conversations[0], [])
    try:
        return replace(subject, served=ask(launch, ids, first, config.suite.max_new_tokens, out, _tell))
    except LabError as e:
        return replace(subject, unserved=str(e), missing=unanswered)


def _asked_spec(config: Config) -> Spec:
    """What the config states; where it states nothing of a server that runs, what that drafts."""
    from eagle_lab.serve.running import stated_spec

    if config.server.kind is not ServerKind.url or config.spec.kind is not SpecKind.none:
        return config.spec
    client = Client.at(config.server)
    found = stated_spec(client.info())
    if found.kind is SpecKind.none:
        raise LabError(f"{client.base_url} does not speculate: start it with the command that `eagle-lab serve` prints")
    return found


def _tell(line: str) -> None:
    print(f"doctor: {line}", file=sys.stderr, flush=True)


def _table(verdicts: list[Verdict]) -> Table:
    table = Table()
    for column in ("check", "verdict", "found", "wanted", "fix"):
        table.add_column(column, overflow="fold")
    for v in verdicts:
        f = v.finding
        label = LABELS.get(f.level, f.level.value)
        # what is found holds paths, which may look like markup
        table.add_row(v.check, label, Text(f.found), Text(f.wanted), Text(f.fix))
    return table


def _print_views(subject: Subject) -> None:
    """A table of what an engine does not take as it is there, or takes in another way than the other one."""
    from eagle_lab.doctor.registry import ODD
    from eagle_lab.doctor.views import VERSIONS, views

    head = subject.given
    try:
        names = [header.name for header in head.headers.values()]
        rows = views(head.written, names, subject.its_target.num_hidden_layers)
    except (LabError, *ODD) as e:
        print(f"no views: {e}")
        return
    table = Table(title="What the engines make of it, where they differ or do not take it")
    for column in ("field or tensor", *VERSIONS.values()):
        table.add_column(column, overflow="fold")
    for row in rows:
        if row.telling:
            table.add_row(row.part, *(Text(str(row.by[engine])) for engine in VERSIONS))
    Console().print(table)
