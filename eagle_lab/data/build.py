"""Prompts -> the target's answers -> a dataset: three stages, one server for the first two.

    root/prompts/NAME-DIGEST   what the target wrote as user turns (self_synth sources only)
    root/answers/NAME-DIGEST   its answers, in token ids
    root/datasets/NAME-DIGEST  tokens with the place where the answer starts

A killed run loses no answer: each is on disk when it comes back, and the next run asks for the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from eagle_lab.config.digest import plain
from eagle_lab.config.errors import LabError
from eagle_lab.config.fetch import located, named, prompts
from eagle_lab.config.schema import Config, ServerKind, SourceKind, Spec
from eagle_lab.config.stage import Stage, stage, stage_path
from eagle_lab.data import answers, sources, store
from eagle_lab.data.answers import Answered
from eagle_lab.data.contamination import Suites
from eagle_lab.data.sources import Gathered, served_by
from eagle_lab.serve import chat
from eagle_lab.serve.client import Client
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.process import serving
from eagle_lab.target.locate import LocatedTarget

FORMAT = 1
"""Of the stages' files; a change makes them anew."""


def build(config: Config, target: LocatedTarget, root: Path) -> Stage:
    """The finished dataset stage of this config, made where it is not there yet; `dataset.load(stage.path)` reads it.

    Starts a server only when something has to be generated. Raises LabError for sources, templates and limits that
    give no data, ServingFault when the server fails.
    """
    config = _fetched(config)
    data, suites = config.data, _suites(config)
    _check(config)
    with stage(root, "datasets", data.name, _key(config, target, suites)) as work:
        if work.manifest is None:
            tokenizer = chat.load_tokenizer(target.path)
            with _one_server(config, target, work.path / "server.log") as client:
                gathered = sources.gather(config, target, tokenizer, suites, root, client)
                answered, dropped = _answers(config, target, tokenizer, gathered, root, client)
            limits = store.Limits(data.max_length, target.eos_token_ids, target.vocab_size, data.holdout, data.seed)
            facts = store.write(work.path, answered, limits)
            facts["dropped"] = dict(gathered.dropped + dropped + Counter(facts["dropped"]))
            work.finish(
                {"target": target.name, "found": gathered.found, "regenerated": data.answers.regenerate, **facts}
            )
    return work


def place(config: Config, target: LocatedTarget, root: Path) -> Path:
    """Where `build` makes it, made or not."""
    config = _fetched(config)
    return stage_path(root, "datasets", config.data.name, _key(config, target, _suites(config)))


def _fetched(config: Config) -> Config:
    """With the files of all sources on this disk."""
    cache = Path(config.paths.cache)
    return replace(config, data=replace(config.data, sources=[prompts(s, cache) for s in config.data.sources]))


def _suites(config: Config) -> Suites:
    """Those that are kept out of the prompts."""
    return Suites([located(named(name), Path(config.paths.cache)) for name in config.data.decontaminate])


def _check(config: Config) -> None:
    data, server = config.data, config.server
    synthesised = [s for s in data.sources if s.kind is SourceKind.self_synth]
    if synthesised and not data.answers.regenerate:
        raise LabError(
            "data.answers.regenerate=false with a self_synth source: prompts that the target writes have no answers. "
            "Set data.answers.regenerate=true, or use data=jsonl with conversations."
        )
    longest = max([data.answers.max_new_tokens, *(s.max_new_tokens for s in synthesised)])
    if data.answers.regenerate and longest >= server.context_length:
        raise LabError(
            f"data: {longest} new tokens do not fit server.context_length={server.context_length} together with a "
            "prompt. Lower data.answers.max_new_tokens (or the source's max_new_tokens), or raise the second."
        )


def _key(config: Config, target: LocatedTarget, suites: Suites) -> dict[str, Any]:
    """All that decides the dataset's content, known before anything is generated."""
    data = config.data
    return {
        "format": FORMAT,
        "target": target.digest,
        "sources": [sources.key(s) for s in data.sources],
        "answers": _answers_key(config) if data.answers.regenerate else {"regenerate": False},
        "max_length": data.max_length,
        "holdout": data.holdout,
        "seed": data.seed,
        "suites": suites.digests,
    }


def _answers_key(config: Config) -> dict[str, Any]:
    settings = {k: v for k, v in plain(config.data.answers).items() if k != "concurrency"}
    return {**settings, "server": served_by(config)}


def _answers(
    config: Config,
    target: LocatedTarget,
    tokenizer: Any,
    gathered: Gathered,
    root: Path,
    client: Callable[[], Client],
) -> tuple[list[Answered], Counter[str]]:
    """Its own stage, so that another max_length or holdout does not generate anew."""
    data = config.data
    if not data.answers.regenerate:
        return answers.found_in_source(gathered.conversations, tokenizer, target.eos_token_ids)
    key = {
        "format": FORMAT,
        "target": target.digest,
        "prompts": gathered.digest,
        "answers": _answers_key(config),
        "seed": data.seed,
    }
    with stage(root, "answers", data.name, key) as work:
        answered, dropped = answers.regenerate(
            gathered.conversations,
            work.path / "answers.jsonl",
            client,
            tokenizer,
            data.answers,
            seed=data.seed,
            context_length=config.server.context_length,
        )
        if work.manifest is None:
            generated = sum(len(a.answer_ids) for a in answered)
            work.finish({"answers": len(answered), "generated_tokens": generated, "dropped": dropped})
    return answered, dropped


@contextmanager
def _one_server(config: Config, target: LocatedTarget, log: Path) -> Iterator[Callable[[], Client]]:
    """A function that gives the client of one server, started at its first call and stopped at the end."""
    in_flight = config.data.answers.concurrency
    server = replace(config.server, max_running_requests=in_flight)
    launch = Launch(target=target.path, server=server, spec=Spec(), head=None)
    with ExitStack() as open_:

        @cache
        def client() -> Client:
            opened = open_.enter_context(serving(launch, log))
            if server.kind is not ServerKind.cpu:
                # a GPU's pass over new prompts takes 30 to 60 ms, be they 1 or 100, and nothing else is decoded in it
                opened.together = max(1, in_flight // 4)
            return opened

        yield client
