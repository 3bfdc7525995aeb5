"""Held-out prompts: read once, named by their content, asked turn by turn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.prompts import Conversation, read_conversations, suite_path
from eagle_lab.config.schema import Suite
from eagle_lab.serve import chat
from eagle_lab.serve.client import Client, Completion
from eagle_lab.serve.progress import Progress


@dataclass(frozen=True)
class Prompts:
    settings: Suite
    conversations: list[Conversation]
    digest: str
    """Of what is asked (ids, system texts, user turns, categories); not of how (temperature, concurrency, ...)."""


def load_suite(suite: Suite) -> Prompts:
    """The suite's conversations; LabError for a file that is missing, empty or malformed, and for bad settings."""
    if suite.concurrency < 1 or suite.max_new_tokens < 1:
        raise LabError(
            f"suite {suite.name}: concurrency={suite.concurrency}, max_new_tokens={suite.max_new_tokens}; at least 1 "
            "of each is needed."
        )
    file = suite_path(suite.name, suite.path)
    found = read_conversations(file, suite.format, suite.field, suite.limit, suite.category)
    asked = [[c.id, c.system, c.turns, c.category] for c in found]
    return Prompts(settings=suite, conversations=found, digest=digest(asked))


def first_prompts(prompts: Prompts, tokenizer: Any, count: int) -> list[list[int]]:
    """Token ids of the first turns of the first `count` conversations."""
    return [chat.prompt_ids(tokenizer, chat.messages(c, [])) for c in prompts.conversations[:count]]


def check_fits(prompts: Prompts, tokenizer: Any, context_length: int) -> None:
    """LabError, before any server starts, when a conversation with full-length answers would not fit the context."""
    new = prompts.settings.max_new_tokens
    for c in prompts.conversations:
        longest = len(chat.prompt_ids(tokenizer, chat.messages(c, [""] * (len(c.turns) - 1)))) + new * len(c.turns)
        if longest > context_length:
            raise LabError(
                f"suite {prompts.settings.name}, prompt {c.id}: {len(c.turns)} turn(s) with answers of {new} tokens "
                f"can reach {longest} tokens, but server.context_length={context_length}. Raise server.context_length, "
                "lower suite.max_new_tokens, or take the prompt out of the suite."
            )


def ask(client: Client, tokenizer: Any, prompts: Prompts) -> list[dict[str, Any]]:
    """One row per request: all first turns, then all second turns, and so on.

    A later turn sees the answers that this server gave to the earlier ones. `started` counts in seconds from the first
    request; rows are in the order of turn, then conversation. Untimed, each has `correct_by_step` as of `traced`.
    """
    settings = prompts.settings
    answers: dict[str, list[str]] = {c.id: [] for c in prompts.conversations}
    rows: list[dict[str, Any]] = []
    for turn in range(max(len(c.turns) for c in prompts.conversations)):
        open_ = [c for c in prompts.conversations if len(c.turns) > turn]
        asked = [chat.prompt_ids(tokenizer, chat.messages(c, answers[c.id])) for c in open_]
        progress = Progress(f"{settings.name}, turn {turn + 1}", len(asked))
        done = client.generate(
            asked,
            max_new_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            concurrency=settings.concurrency,
            seed=settings.seed,
            # a message per token costs the cores of a CPU server more than the model does
            every_step=not settings.timed,
            on_done=progress.ended,
        )
        for conversation, ids, completion in zip(open_, asked, done, strict=True):
            answers[conversation.id].append(completion.text)
            rows.append(
                {
                    "prompt": conversation.id,
                    "turn": turn,
                    "category": conversation.category,
                    "prompt_ids": ids,
                    "token_ids": completion.token_ids,
                    "text": completion.text,
                    "finish_reason": completion.finish_reason,
                    "verify_ct": completion.verify_ct,
                    "correct_drafts": completion.correct_drafts,
                    "histogram": completion.histogram,
                    "started": completion.started,
                    "first_token_s": completion.first_token_s,
                    "total_s": completion.total_s,
                    **({} if settings.timed else {"correct_by_step": _correct_by_step(completion)}),
                }
            )
    begin = min(row["started"] for row in rows)
    return [{**row, "started": row["started"] - begin} for row in rows]


def traced(client: Client, prompts: Prompts, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The requests of `ask` with `correct_by_step`: asked once more, untimed, with a message after each verify step.

    SGLang sends the counters with the last message only, so the lengths of the others tell what each step accepted.
    Above temperature 0 that is another sample. None where messages were merged on their way.
    """
    settings = prompts.settings
    progress = Progress(f"{settings.name} once more, step by step", len(requests))
    done = client.generate(
        [r["prompt_ids"] for r in requests],
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        concurrency=settings.concurrency,
        every_step=True,
        on_done=progress.ended,
    )
    return [{**r, "correct_by_step": _correct_by_step(c)} for r, c in zip(requests, done, strict=True)]


def _correct_by_step(done: Completion) -> list[int] | None:
    if len(done.lengths) != done.verify_ct + 1:
        return None
    delivered = [after - before - 1 for before, after in pairwise(done.lengths)]
    # the answer may end inside the last step; the counter knows all that the step accepted
    return [*delivered[:-1], done.correct_drafts - sum(delivered[:-1])] if delivered else []
