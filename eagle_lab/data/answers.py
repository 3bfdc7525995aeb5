"""What the target answers: every assistant turn becomes one answered prompt, in token ids.

Regenerated answers are the ids that the server took and gave, so the place where the answer starts is exact by
construction. Answers found in the source are tokenised by the tokenizer's own chat template, and the template is
checked to render an answer right behind the prompt that serving uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_lab.config.digest import digest
from eagle_lab.config.errors import LabError
from eagle_lab.config.files import append_jsonl, read_jsonl
from eagle_lab.config.prompts import Conversation
from eagle_lab.config.schema import Answers
from eagle_lab.data.special import special_ids
from eagle_lab.serve import chat
from eagle_lab.serve.client import Client, Completion
from eagle_lab.serve.progress import Progress

ROW = {
    **{"id": str, "turn": int, "prompt_ids": list[int], "answer_ids": list[int]},
    **{"text": str, "finish_reason": str},
}
"""Of the file that answers are kept in."""


@dataclass(frozen=True)
class Answered:
    """One assistant turn."""

    conversation: Conversation
    turn: int
    """Which user turn it answers, from 0."""
    prompt_ids: list[int]
    """Template, earlier turns and the generation prompt, exactly as served."""
    answer_ids: list[int]
    """The answer, with its end-of-turn token where it has one."""
    text: str
    finish_reason: str
    """stop, length (cut at max_new_tokens) or given (from the source)."""


def regenerate(
    conversations: list[Conversation],
    file: Path,
    client: Callable[[], Client],
    tokenizer: Any,
    settings: Answers,
    *,
    seed: int,
    context_length: int,
) -> tuple[list[Answered], Counter[str]]:
    """(answers in the order of the conversations, turns left unanswered by reason).

    Turn by turn: turn 2 sees answer 1. Each answer is appended to `file` as it comes back, and a second call
    continues from there; the client is only asked for when something is missing.
    """
    fix = f"Remove {file} to ask for every answer again, or only that line."
    kept = read_jsonl(file, ROW, fix, torn_tail=True) if file.exists() else []
    done = {(row["id"], row["turn"]): row for row in kept}
    dropped: Counter[str] = Counter()
    open_ = conversations
    for turn in range(max(len(c.turns) for c in conversations)):
        open_ = [c for c in open_ if turn < len(c.turns)]
        missing = [c for c in open_ if (c.id, turn) not in done]
        prompts = {c.id: chat.prompt_ids(tokenizer, chat.messages(c, _texts(c, turn, done))) for c in missing}
        fitting = [c for c in missing if len(prompts[c.id]) + settings.max_new_tokens <= context_length]
        if fitting:
            done |= _ask(fitting, turn, [prompts[c.id] for c in fitting], file, client(), settings, seed)
        for c in open_:
            if (c.id, turn) not in done:
                dropped["prompt and answer over server.context_length"] += len(c.turns) - turn
        # an empty answer is nothing to go on from
        open_ = [c for c in open_ if (c.id, turn) in done and done[c.id, turn]["text"].strip()]
    rows = [(c, turn, done[c.id, turn]) for c in conversations for turn in range(len(c.turns)) if (c.id, turn) in done]
    return [
        Answered(c, turn, r["prompt_ids"], r["answer_ids"], r["text"], r["finish_reason"]) for c, turn, r in rows
    ], dropped


def _texts(conversation: Conversation, turn: int, done: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    return [done[conversation.id, earlier]["text"] for earlier in range(turn)]


def _ask(
    conversations: list[Conversation],
    turn: int,
    prompts: list[list[int]],
    file: Path,
    client: Client,
    settings: Answers,
    seed: int,
) -> dict[tuple[str, int], dict[str, Any]]:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    progress = Progress(f"answers to turn {turn + 1}", len(prompts))
    file.parent.mkdir(parents=True, exist_ok=True)

    def keep(index: int, done: Completion) -> None:
        conversation = conversations[index]
        row = {
            "id": conversation.id,
            "turn": turn,
            "prompt_ids": prompts[index],
            "answer_ids": done.token_ids,
            "text": done.text,
            "finish_reason": done.finish_reason,
        }
        rows[conversation.id, turn] = row
        append_jsonl(file, row)
        progress.step(len(done.token_ids))

    client.generate(
        prompts,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        concurrency=settings.concurrency,
        seed=[_request_seed(seed, c.id, turn) for c in conversations] if settings.temperature > 0 else None,
        on_done=keep,
    )
    return rows


def _request_seed(seed: int, conversation: str, turn: int) -> int:
    """31 bits that name the request, not its place in a batch: a continued run asks as an uninterrupted one does."""
    return int(digest([seed, conversation, turn])[:8], 16) >> 1


def found_in_source(
    conversations: list[Conversation], tokenizer: Any, eos_token_ids: list[int]
) -> tuple[list[Answered], Counter[str]]:
    """(the source's own answers, turns left out by reason).

    Raises LabError when there is no answer at all, or for a template that does not render an answer right behind the
    generation prompt.
    """
    rows: list[Answered] = []
    dropped: Counter[str] = Counter()
    special = special_ids(tokenizer)
    for conversation in conversations:
        answers = conversation.answers or []
        dropped["turn without an answer in the source"] += len(conversation.turns) - len(answers)
        for turn, text in enumerate(answers):
            asked = chat.messages(conversation, answers[:turn])
            ids = _answer_ids(tokenizer, asked, text, eos_token_ids)
            if special & set(ids[:-1]):
                dropped["answer with special tokens"] += 1
                continue
            rows.append(Answered(conversation, turn, chat.prompt_ids(tokenizer, asked), ids, text, "given"))
    if not rows:
        raise LabError(
            f"answers.regenerate=false: none of {len(conversations)} conversations has an answer to train on. Use "
            "answers.regenerate=true, or sources with `messages` or `conversations`."
        )
    return rows, +dropped


def _answer_ids(tokenizer: Any, asked: list[dict[str, str]], answer: str, eos_token_ids: list[int]) -> list[int]:
    """Ids of the answer as the template renders it behind the generation prompt, up to its end-of-turn token."""
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template([*asked, {"role": "assistant", "content": answer}], tokenize=False)
    if not whole.startswith(prompt):
        at = next(
            (i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), min(len(prompt), len(whole))
        )
        raise LabError(
            f"chat template of {tokenizer.name_or_path}: the conversation with its answer does not start with the "
            f"prompt that is served, so the answer's first token is unknown. At character {at} the prompt goes on with "
            f"{prompt[at : at + 40]!r}, the conversation with {whole[at : at + 40]!r} (both after "
            f"{whole[max(0, at - 40) : at]!r}). Use answers.regenerate=true, or a consistent target.chat_template."
        )
    ids = list(tokenizer(whole[len(prompt) :], add_special_tokens=False)["input_ids"])
    ends = [i for i, token in enumerate(ids) if token in eos_token_ids]
    return ids[: ends[-1] + 1] if ends else [*ids, eos_token_ids[0]]
