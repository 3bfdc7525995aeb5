"""A fake server: it continues every prompt by a rule, and its counters follow from its accept length."""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eagle_lab.config.errors import ServingFault
from eagle_lab.config.schema import Server, ServerKind, Spec, SpecKind, Suite
from eagle_lab.evaluate import bench as bench_module
from eagle_lab.evaluate import measure as measure_module
from eagle_lab.serve import chat
from eagle_lab.serve.client import Completion
from eagle_lab.serve.launch import Launch


class FakeTokenizer:
    """Word lengths as ids; chat.prompt_ids needs nothing but a template."""

    def apply_chat_template(self, messages, **_):
        return [len(word) for m in messages for word in (m["role"] + " " + m["content"]).split()] + [1]


@dataclass
class FakeServing:
    """Stands for serve.process.serving and for the clients it yields."""

    launches: list[Launch] = field(default_factory=list)
    calls: list[tuple] = field(default_factory=list)
    answer: dict = field(default_factory=dict)
    """spec kind -> first token of every answer, to make a server that is not lossless."""
    dies: bool = False
    clock: itertools.count = field(default_factory=itertools.count)

    @contextmanager
    def __call__(self, launch, log, keep=False):
        self.launches.append(launch)
        log.write_text("started")
        yield FakeClient(self, launch)


@dataclass
class FakeClient:
    serving: FakeServing
    launch: Launch

    def info(self):
        return {"version": "fake"}

    def flush(self):
        self.serving.calls.append(("flush",))

    def generate(
        self, prompts, *, max_new_tokens, concurrency=1, temperature=0.0, seed=None, every_step=False, on_done=None
    ):
        asked = (prompts, max_new_tokens, concurrency, temperature, seed)
        self.serving.calls.append(("trace" if every_step else "generate", *asked))
        if self.serving.dies:
            raise ServingFault("the server died")
        found = [self.completion(ids, max_new_tokens) for ids in prompts]
        for index, done in enumerate(found):
            if on_done:
                on_done(index, done)
        return found

    def completion(self, ids, tokens):
        kind = self.launch.spec.kind
        drafts = {SpecKind.none: 0, SpecKind.chain: 1, SpecKind.tree: 2}[kind]
        rounds = 0 if drafts == 0 else (tokens - 1) // (drafts + 1)
        first = self.serving.answer.get(kind, sum(ids))
        return Completion(
            token_ids=[first + i for i in range(tokens)],
            text=f"answer {sum(ids)}",
            prompt_tokens=len(ids),
            finish_reason="length",
            verify_ct=rounds,
            correct_drafts=drafts * rounds,
            histogram=[0] * drafts + [rounds] if rounds else [],
            started=100.0 + next(self.serving.clock),
            first_token_s=0.1,
            total_s=1.0 if drafts == 0 else 0.5,
            lengths=[min(1 + i * (drafts + 1), tokens) for i in range(rounds + 1)],
            hidden_states=None,
        )


@pytest.fixture
def server(monkeypatch) -> FakeServing:
    fake = FakeServing()
    monkeypatch.setattr(measure_module, "serving", fake)
    monkeypatch.setattr(chat, "load_tokenizer", lambda path: FakeTokenizer())
    monkeypatch.setattr(measure_module, "version", lambda name: "0.0.fake")

    def probe(launch, aux_width, prompts, log):
        fake.calls.append(("probe", launch.hidden_states, aux_width, prompts))
        return {"captured_width": aux_width, "counters": []}

    monkeypatch.setattr(bench_module, "probe", probe)
    monkeypatch.setattr(measure_module, "check_counters", lambda client, proof: fake.calls.append(("counters", proof)))
    return fake


@pytest.fixture
def suite_file(tmp_path) -> Path:
    path = tmp_path / "suite.jsonl"
    rows = [
        {"id": "one", "turns": ["first question"], "category": "math"},
        {"id": "two", "turns": ["second", "and then?"]},
        {"id": "three", "turns": ["third question here"]},
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


@pytest.fixture
def suite(suite_file) -> Suite:
    return Suite(name="fake", path=str(suite_file), max_new_tokens=13)


@pytest.fixture
def launch(tmp_path) -> Launch:
    head = tmp_path / "head"
    head.mkdir()
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": 64,
        "vocab_size": 512,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]},
    }
    (head / "config.json").write_text(json.dumps(config))
    spec = Spec(kind=SpecKind.chain, num_draft_tokens=5)
    server = Server(kind=ServerKind.cpu, dtype="float32", attention_backend="intel_amx")
    return Launch(tmp_path / "target", server, spec, head)
