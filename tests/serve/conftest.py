"""A target and a head as directories: tiny config files for the pure tests, real ones for the real server."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle_lab.config.schema import Spec, SpecKind
from eagle_lab.serve import process as process_module
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.process import members
from tests.fake_sglang import info_of
from tests.known_acceptance import CPU, known_pair

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
}
HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 64,
    "vocab_size": 512,
    "draft_vocab_size": 100,
    "max_position_embeddings": 2048,
}
CHAIN = Spec(SpecKind.chain, num_draft_tokens=4)


def directory(path: Path, config: dict[str, Any], export: dict[str, Any] | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if export is not None:
        (path / "export.json").write_text(json.dumps(export))
    return path


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """A legal launch of a chain; its directories hold config files only."""
    return Launch(directory(tmp_path / "target", TARGET), CPU, CHAIN, directory(tmp_path / "head", HEAD))


@pytest.fixture
def plain(launch: Launch) -> Launch:
    return replace(launch, spec=Spec(), head=None)


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Real weights: next(t) = t + 1, and its exact head that lacks the tokens t % SKIP == 0."""
    root = tmp_path_factory.mktemp("known")
    target, head = known_pair(root)
    return Launch(target.path, CPU, CHAIN, head, target_digest=target.digest)


# answers /health like SGLang; {behaviour} comes first. Its child and itself ignore SIGTERM, the child outlives it
FAKE = """
import http.server, os, signal, subprocess, sys, time
port = int(sys.argv[1])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
print("loading weights", os.environ.get("SGLANG_SIMULATE_ACC_LEN", "unset"), flush=True)
{behaviour}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write({info!r})
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def fake(plain, monkeypatch, tmp_path):
    """Puts a fake server with this behaviour in SGLang's place."""

    def use(behaviour: str = "") -> None:
        script = tmp_path / "fake.py"
        script.write_text(FAKE.format(behaviour=behaviour, info=json.dumps(info_of(plain)).encode()))
        monkeypatch.setattr(process_module, "argv", lambda launch, port: [sys.executable, str(script), str(port)])

    return use


@pytest.fixture
def group(monkeypatch) -> list[int]:
    """The process groups that were started."""
    groups: list[int] = []
    start = process_module.start

    def recorded(*args):
        found = start(*args)
        groups.append(found.pid)
        return found

    monkeypatch.setattr(process_module, "start", recorded)
    return groups


def gone(pid: int, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while members(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not members(pid)
