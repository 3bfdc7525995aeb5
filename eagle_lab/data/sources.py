"""The configured sources -> one list of conversations: no duplicates, nothing that a suite asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagle_lab.config.digest import digest, file_digest, plain
from eagle_lab.config.errors import LabError
from eagle_lab.config.prompts import Conversation, read_conversations, source_file
from eagle_lab.config.schema import Config, Source, SourceKind
from eagle_lab.config.stage import stage
from eagle_lab.data import synth
from eagle_lab.data.contamination import Suites, words
from eagle_lab.serve.client import Client
from eagle_lab.target.locate import LocatedTarget


@dataclass(frozen=True)
class Gathered:
    conversations: list[Conversation]
    """Ids are unique over all sources: SOURCE/ID, where SOURCE counts from 0."""
    dropped: Counter[str]
    """Prompts that were left out, by reason."""
    found: list[int]
    """Conversations that each source gave, before duplicates and suites were taken out."""

    @property
    def digest(self) -> str:
        return digest(self.conversations)


def key(source: Source) -> dict[str, Any]:
    """What decides a source's content: for a file its bytes, not its place. Raises LabError for a missing file."""
    fields = {k: v for k, v in plain(source).items() if v is not None}
    if source.kind is SourceKind.jsonl:
        assert source.path is not None
        file = source_file(source.path)
        return {k: fields[k] for k in ("kind", "format", "field", "count") if k in fields} | {
            "stem": file.stem,
            "content": file_digest(file),
        }
    return {k: fields[k] for k in ("kind", "count", "temperature", "top_p", "max_new_tokens")}


def gather(
    config: Config, target: LocatedTarget, tokenizer: Any, suites: Suites, root: Path, client: Callable[[], Client]
) -> Gathered:
    """Reads or writes every source's prompts, then takes out duplicates and what shares an 8-gram with a suite.

    Raises LabError for a source that gives less than its count, and when nothing is left.
    """
    conversations: list[Conversation] = []
    dropped: Counter[str] = Counter()
    found = []
    seen: set[tuple[str, ...]] = set()
    for number, source in enumerate(config.data.sources):
        if source.kind is SourceKind.self_synth:
            given, refused = _synthesised(source, number, config, target, tokenizer, suites, root, client)
            dropped.update(refused)
        else:
            given = read_source(source)
        found.append(len(given))
        for conversation in given:
            text = words("\n".join(conversation.turns))
            if any(suites.hit(turn) for turn in conversation.turns):
                dropped["prompt in a suite"] += 1
            elif text in seen:
                dropped["duplicate prompt"] += 1
            else:
                seen.add(text)
                conversations.append(replace(conversation, id=f"{number}/{conversation.id}"))
    if not conversations:
        raise LabError(
            f"data={config.data.name}: no prompt is left of {sum(found)} read ({_listed(dropped)}). Give other "
            f"sources, or look at data.decontaminate={config.data.decontaminate}."
        )
    return Gathered(conversations, dropped, found)


def _listed(dropped: Counter[str]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in dropped.most_common())


def read_source(source: Source) -> list[Conversation]:
    """Of a source with a path. LabError for a file that is not as it says, or has fewer than its count."""
    assert source.path is not None
    file = source_file(source.path)
    given = read_conversations(file, source.format, source.field, source.count)
    if source.count is not None and len(given) < source.count:
        raise LabError(
            f"data.sources: count={source.count} of {file}, which has {len(given)} conversations. Lower the count, or "
            "leave it out to take all."
        )
    return given


def _synthesised(
    source: Source,
    number: int,
    config: Config,
    target: LocatedTarget,
    tokenizer: Any,
    suites: Suites,
    root: Path,
    client: Callable[[], Client],
) -> tuple[list[Conversation], Counter[str]]:
    """The prompts of one self_synth source, a stage of its own: root/prompts/NAME-DIGEST/attempts.jsonl."""
    data = config.data
    # sources of the same settings must not write the same prompts
    seed = data.seed + number * 1_000_000
    identity = {
        "format": 1,
        "target": target.digest,
        "source": key(source),
        "suites": suites.digests,
        "seed": seed,
        "server": served_by(config),
    }
    with stage(root, "prompts", data.name, identity) as work:
        turns, dropped = synth.write_prompts(
            source,
            work.path / "attempts.jsonl",
            client,
            tokenizer,
            target.eos_token_ids,
            suites,
            seed=seed,
            concurrency=data.answers.concurrency,
        )
        if work.manifest is None:
            work.finish({"prompts": len(turns), "attempts_dropped": dropped})
    conversations = [Conversation(id=f"synth-{i}", turns=[t], category="self_synth") for i, t in enumerate(turns)]
    return conversations, Counter({f"self-written prompt {reason}": n for reason, n in dropped.items()})


def served_by(config: Config) -> dict[str, Any]:
    """What of the server changes the text it writes."""
    s = config.server
    return {"kind": s.kind.value, "dtype": s.dtype, "quantization": s.quantization, "context_length": s.context_length}
