"""Prompts without a dataset: the target writes the user turn from its own template prefix (Magpie, arXiv 2406.08464).

A model that is trained on its chat template has also learnt what users write into it: served the template up to the
place where the user's text starts, it writes such a text and ends it with its end-of-turn token.

What repeats: the attempts are numbered, attempt a asks with seed `data.seed + a`, and which of them are kept depends
on their number, not on when they came back. SGLang honours a request's seed only under
--enable-deterministic-inference. Without it (it changes the kernels, so our own servers do not set it) the text depends
on how requests were batched: the same command on an empty folder writes other prompts, and another data.seed need not.
What is on disk is never asked for again, so a finished or interrupted stage does repeat.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.files import append_jsonl, read_jsonl
from eagle_lab.config.schema import Source
from eagle_lab.data.contamination import Suites, words
from eagle_lab.data.special import special_ids
from eagle_lab.serve.client import Client, Completion
from eagle_lab.serve.progress import Progress

ROW = {"attempt": int, "token_ids": list[int], "finish_reason": str}
"""Of the file that attempts are kept in."""
SENTINEL = "USERTURNSTARTSHERE"
MAX_ROUNDS = 12
# below this share of usable turns a round asks no more than 1 / MIN_YIELD times what is missing
MIN_YIELD = 0.2


def opening(tokenizer: Any, eos_token_ids: list[int]) -> tuple[list[int], list[int]]:
    """(ids of the chat template up to the user's text, ids that end a user turn).

    Raises LabError when the template does not place the user's text exactly once.
    """
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": SENTINEL}], tokenize=False)
    if rendered.count(SENTINEL) != 1:
        raise LabError(
            f"chat template of {tokenizer.name_or_path}: a user turn appears {rendered.count(SENTINEL)} times in its "
            "rendering, so it has no place where a user turn starts. Use data=jsonl with prompts of your own, or give "
            "target.chat_template."
        )
    before, after = rendered.split(SENTINEL)
    # a template that ends in a space ("[INST] ") was trained on the space as part of the next token
    start = tokenizer(before.rstrip(" "), add_special_tokens=False)["input_ids"]
    follows = tokenizer(after, add_special_tokens=False)["input_ids"][:1]
    stops = set(eos_token_ids) | (set(follows) & special_ids(tokenizer))
    return list(start), sorted(stops)


def write_prompts(
    source: Source,
    file: Path,
    client: Callable[[], Client],
    tokenizer: Any,
    eos_token_ids: list[int],
    suites: Suites,
    *,
    seed: int,
    concurrency: int,
) -> tuple[list[str], Counter[str]]:
    """(source.count user turns, how many attempts were dropped by reason).

    Every attempt is appended to `file` as it comes back; a second call continues from there. The client is only
    asked for when something is missing. Raises LabError when the target does not write enough usable turns.
    """
    assert source.count is not None
    start, stops = opening(tokenizer, eos_token_ids)
    fix = f"Remove {file} to have every prompt written again, or only that line."
    attempts = {r["attempt"]: r for r in read_jsonl(file, ROW, fix, torn_tail=True)} if file.exists() else {}
    asked = 0
    kept: list[str] = []
    dropped: Counter[str] = Counter()
    for number in range(MAX_ROUNDS):
        asked += _round_size(source.count - len(kept), len(kept), asked)
        missing = [a for a in range(asked) if a not in attempts]
        if missing:
            attempts |= _ask(source, file, client(), start, stops, missing, seed, concurrency)
        kept, dropped = _judge([attempts[a] for a in range(asked)], tokenizer, stops, suites)
        if len(kept) >= source.count:
            return kept[: source.count], dropped
        if not kept and number == 1:
            break
    raise LabError(
        f"self_synth: {len(kept)} of {source.count} prompts after {asked} attempts; dropped "
        f"{', '.join(f'{n} {reason}' for reason, n in dropped.most_common())}. Raise max_new_tokens "
        f"({source.max_new_tokens}) if most are unfinished, or temperature ({source.temperature}) if they are "
        "duplicates, lower count, or use data=jsonl with prompts of your own."
    )


def _round_size(missing: int, kept: int, asked: int) -> int:
    """Attempts for what is missing at the yield seen so far; depends on counts only, so a restart plans alike."""
    share = max(kept / asked, MIN_YIELD) if asked else 1.0
    return math.ceil(1.1 * missing / share) + 4


def _ask(
    source: Source,
    file: Path,
    client: Client,
    start: list[int],
    stops: list[int],
    attempts: list[int],
    seed: int,
    concurrency: int,
) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    progress = Progress("prompts", len(attempts))
    file.parent.mkdir(parents=True, exist_ok=True)

    def keep(index: int, done: Completion) -> None:
        row: dict[str, Any] = {
            "attempt": attempts[index],
            "token_ids": done.token_ids,
            "finish_reason": done.finish_reason,
        }
        rows[row["attempt"]] = row
        append_jsonl(file, row)
        progress.step(len(done.token_ids))

    client.generate(
        [start] * len(attempts),
        max_new_tokens=source.max_new_tokens,
        temperature=source.temperature,
        top_p=source.top_p,
        concurrency=concurrency,
        seed=[seed + a for a in attempts],
        stop_token_ids=stops,
        on_done=keep,
    )
    return rows


def _judge(
    attempts: list[dict[str, Any]], tokenizer: Any, stops: list[int], suites: Suites
) -> tuple[list[str], Counter[str]]:
    """Usable user turns in the order of their attempts, and why the others are not."""
    kept: dict[tuple[str, ...], str] = {}
    dropped: Counter[str] = Counter()
    special = special_ids(tokenizer)
    for attempt in attempts:
        ids = attempt["token_ids"]
        body = ids[:-1] if ids and ids[-1] in stops else ids
        text = tokenizer.decode(body).strip()
        key = words(text)
        if attempt["finish_reason"] != "stop":
            dropped["unfinished"] += 1
        elif special & set(body):
            dropped["with special tokens"] += 1
        elif not key:
            dropped["empty"] += 1
        elif key in kept:
            dropped["duplicate"] += 1
        elif suites.hit(text):
            dropped["in a suite"] += 1
        else:
            kept[key] = text
    return list(kept.values()), dropped
