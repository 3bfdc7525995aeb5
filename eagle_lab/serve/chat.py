"""Messages -> token ids, by the tokenizer's own chat template: the one place that data and suites are rendered by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError
from eagle_lab.config.prompts import Conversation


def load_tokenizer(path: Path) -> Any:
    """The Hugging Face tokenizer in `path`. Raises LabError when there is none, or none with a chat template."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError) as e:
        raise LabError(f"{path}: no tokenizer can be loaded from there ({e}). Give a Hugging Face directory.") from e
    if not tokenizer.chat_template:
        raise LabError(
            f"{path}: its tokenizer has no chat template, so no prompt can be rendered. Give one with "
            "target.chat_template='...' (Jinja)."
        )
    return tokenizer


def prompt_ids(tokenizer: Any, turns_and_answers: list[dict[str, str]]) -> list[int]:
    """Token ids of the messages ({"role", "content"}) with the generation prompt behind them."""
    ids = tokenizer.apply_chat_template(turns_and_answers, add_generation_prompt=True, tokenize=True, return_dict=False)
    return [int(i) for i in ids]


def messages(conversation: Conversation, answers: list[str]) -> list[dict[str, str]]:
    """The dialogue up to the user turn that comes after `answers`."""
    said = [{"role": "system", "content": conversation.system}] if conversation.system else []
    for turn, answer in zip(conversation.turns, answers, strict=False):
        said += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return [*said, {"role": "user", "content": conversation.turns[len(answers)]}]
