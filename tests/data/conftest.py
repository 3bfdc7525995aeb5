"""A real tokenizer (the tiny target's) and a client that answers by a function instead of a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from eagle_lab.config.errors import ServingFault
from eagle_lab.config.schema import Answers, Config, Data, Paths, Server, ServerKind, Source, Target, TargetKind
from eagle_lab.data import build as build_module
from eagle_lab.serve.chat import load_tokenizer
from eagle_lab.serve.client import Completion
from eagle_lab.target.locate import locate

Reply = Callable[[str, int], tuple[str, str]]


class FakeClient:
    """Answers prompt text and seed with `reply` = (text, finish reason); the last prompt comes back first."""

    def __init__(self, tokenizer, eos: int, reply: Reply) -> None:
        self.tokenizer, self.eos, self.reply = tokenizer, eos, reply
        self.die_after: int | None = None
        self.asked: list[list[int]] = []
        self.starts = 0

    def generate(self, prompts, *, max_new_tokens, seed=None, on_done=None, **_) -> list[Completion]:
        seeds = seed if isinstance(seed, list) else [seed] * len(prompts)
        done = {}
        for i in reversed(range(len(prompts))):
            if self.die_after is not None and len(self.asked) >= self.die_after:
                raise ServingFault("the server died")
            self.asked.append(prompts[i])
            done[i] = self._complete(prompts[i], seeds[i], max_new_tokens)
            if on_done:
                on_done(i, done[i])
        return [done[i] for i in range(len(prompts))]

    def _complete(self, prompt, seed, max_new_tokens) -> Completion:
        text, reason = self.reply(self.tokenizer.decode(prompt), seed)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"][:max_new_tokens]
        return Completion(
            token_ids=[*ids, self.eos] if reason == "stop" else ids,
            text=text,
            prompt_tokens=len(prompt),
            finish_reason=reason,
            verify_ct=0,
            correct_drafts=0,
            histogram=[],
            started=0.0,
            first_token_s=0.0,
            total_s=0.0,
            lengths=[],
            hidden_states=None,
        )


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def target(cache):
    return locate(Target(name="tiny", kind=TargetKind.tiny), cache)


@pytest.fixture
def tokenizer(target):
    return load_tokenizer(target.path)


@pytest.fixture
def client(tokenizer, target, monkeypatch) -> FakeClient:
    """What `build` gets instead of a server; its reply tells prompts apart."""
    fake = FakeClient(tokenizer, target.eos_token_ids[0], lambda prompt, seed: (f"answer of {len(prompt)}", "stop"))

    @contextmanager
    def serving(launch, log):
        fake.starts += 1
        fake.launch = launch
        yield fake

    monkeypatch.setattr(build_module, "serving", serving)
    return fake


@pytest.fixture
def jsonl(tmp_path):
    def write(*rows, name="prompts") -> Path:
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    return write


@pytest.fixture
def configured(cache):
    """configured(path or Source, ..., max_length=..., answers={...}) -> Config on the CPU server."""

    def make(*origins, answers=None, context_length=1024, **data) -> Config:
        given = [o if isinstance(o, Source) else Source(path=str(o)) for o in origins]
        return Config(
            name="test",
            target=Target(name="tiny", kind=TargetKind.tiny),
            data=Data(name="mix", sources=given, answers=Answers(**(answers or {})), **data),
            server=Server(
                kind=ServerKind.cpu,
                dtype="float32",
                context_length=context_length,
                mem_fraction=0.1,
                max_total_tokens=4096,
                attention_backend="intel_amx",
            ),
            paths=Paths(cache=str(cache)),
        )

    return make
