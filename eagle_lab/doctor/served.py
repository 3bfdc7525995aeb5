"""What one server answered, asked once for all checks that look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagle_lab.config.errors import ServingFault
from eagle_lab.config.schema import ServerKind, Spec, SpecKind
from eagle_lab.serve.client import Client, Completion
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.process import serving

SHOWN_TOKENS = 2
"""Of the answer whose hidden states are asked for: its prompt's rows are what is looked at."""


@dataclass(frozen=True)
class Served:
    launch: Launch
    """What was asked for; of a server that ran already, what it should be."""
    info: dict[str, Any]
    """/server_info."""
    shown: list[int]
    """The prompt whose hidden states were asked for."""
    states: Tensor | None
    """[S, W]: what the server feeds the head at `shown`; None where it returns none."""
    prompts: list[list[int]]
    answers: list[Completion]
    """Greedy, one after the other."""
    plain: list[Completion] | None
    """The same prompts without speculation; None where the server ran already."""
    chat: list[int] | str
    """The suite's first prompt as the server's template renders it, or why it does not."""

    @property
    def requests(self) -> list[dict[str, Any]]:
        """As a replay wants them."""
        pairs = zip(self.prompts, self.answers, strict=True)
        return [{"prompt_ids": ids, "token_ids": a.token_ids, "histogram": a.histogram} for ids, a in pairs]

    @property
    def accept_length(self) -> float | None:
        """1 + correct drafts / verify steps; None without a verify step."""
        steps = sum(a.verify_ct for a in self.answers)
        return 1 + sum(a.correct_drafts for a in self.answers) / steps if steps else None


def ask(
    launch: Launch,
    prompts: list[list[int]],
    messages: list[dict[str, str]],
    max_new_tokens: int,
    out: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> Served:
    """Starts the server (and one without speculation) where it does not run already, and asks all that checks need.

    prompts: the first is that of `messages` by our template. Raises LabError for a pair that cannot be served,
    ServingFault for a server that is not what was asked for, or dies.
    """
    chat: list[int] | str
    tell(f"a server with the head answers {len(prompts)} prompts; log: {out / 'doctor.log'}")
    with serving(launch, out / "doctor.log") as client:
        info = client.info()
        shown = min(prompts, key=len)
        states = _states(client, shown) if launch.hidden_states else None
        answers = client.generate(prompts, max_new_tokens=max_new_tokens)
        try:
            chat = client.rendered(messages)
        except ServingFault as e:
            chat = str(e)
    plain = None
    if launch.server.kind is not ServerKind.url:
        tell("a server without it answers the same prompts")
        alone = replace(launch, spec=Spec(SpecKind.none), head=None, hidden_states=False)
        with serving(alone, out / "plain.log") as client:
            plain = client.generate(prompts, max_new_tokens=max_new_tokens)
    tell("the head is replayed over the answers by our own code")
    return Served(launch, info, shown, states, prompts, answers, plain, chat)


def _states(client: Client, ids: list[int]) -> Tensor | None:
    # the first rows are the prompt's, so it may not be in the cache
    client.flush()
    done = client.generate([ids], max_new_tokens=SHOWN_TOKENS, return_hidden_states=True)[0]
    if done.hidden_states is None:
        return None
    block = done.hidden_states[0]
    return torch.tensor(block if block and isinstance(block[0], list) else done.hidden_states, dtype=torch.float32)
