"""One point of a sweep is harmed from outside: it fails by name, the others finish, nothing is left; then it is healed.

Every kind of harm is done to the engine in engine/, which starts in a second; marked long, also to the real server.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from eagle_lab.config.schema import Spec
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.process import free_port, is_free, serving
from eagle_lab.sweep.status import status
from tests.e2e.agents import (
    Ballast,
    Spoil,
    Thief,
    Victim,
    answer,
    at_work,
    flood,
    processes,
    proxy,
    reset,
    signalled,
    small_disk,
)
from tests.e2e.conftest import Lab
from tests.fake_sglang import fake_sglang, info_of
from tests.known_acceptance import CPU, known_pair

ENGINE = Path(__file__).parent / "engine"


@dataclass(frozen=True)
class Setting:
    """A sweep of few points over one target; its victim is one of them."""

    lab: Lab
    target: Path
    real: bool
    words: tuple[str, ...]
    server: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """Of an answer of the victim: enough for a harm to come in between."""
        return 300 if self.real else 60

    @property
    def lengths(self) -> str:
        """Two points that one server serves; the victim comes first."""
        return f"suite.max_new_tokens={self.tokens},8"

    def sweep(self, words: str) -> tuple[int, str]:
        return self.lab.run("bench", "--multirun", *self.words, *self.server, words)

    def victim(self, name: str = "") -> Victim:
        return Victim(self.lab.folder, self.lab.outputs, name or f"max_new_tokens={self.tokens}")

    def also(self, *words: str) -> Setting:
        return replace(self, words=(*self.words, *words))


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target."""
    return known_pair(tmp_path_factory.mktemp("known"))[0].path


@pytest.fixture(params=["engine", pytest.param("real", marks=[pytest.mark.server, pytest.mark.long])])
def setting(known: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Setting]:
    lab = Lab(tmp_path)
    suite = tmp_path / "suite.jsonl"
    suite.write_text("".join(json.dumps({"id": c, "turns": [f"say {c}"]}) + "\n" for c in "abc"))
    words = (
        *("target=hf", f"target.path={known}", "target.name=known", "name=faults", "track=none"),
        *("suite=jsonl", f"suite.path={suite}", "suite.name=abc", "suite.concurrency=2", "suite.replay=0"),
        *("server.context_length=512", "server.max_total_tokens=4096", "server.max_running_requests=4"),
    )
    # plain decoding: a speculating point would start three servers, and be harmed in no other way
    server = ("server=cpu", "spec=none")
    if request.param == "engine":
        lab.environment["PYTHONPATH"] = os.pathsep.join([str(ENGINE), lab.environment["PYTHONPATH"]])
    yield Setting(lab, known, request.param == "real", words, server)
    lab.stop()


def points(lab: Lab) -> dict[str, dict[str, Any]]:
    return {f.parent.name: status(f.parent) for f in lab.outputs.glob("sweeps/*/*/status.json")}


def check(setting: Setting, swept: tuple[int, str], victim: Victim, kind: str, error: str, attempts: int) -> None:
    """The victim alone has failed, by this name; no process is left and no port is taken."""
    code, text = swept
    found = points(setting.lab)
    failed = found.pop(victim.directory.name)
    said = {k: failed.get(k) for k in ("state", "kind", "attempts")}
    assert said == {"state": "failed", "kind": kind, "attempts": attempts}, (failed, text)
    assert re.search(error, failed["error"]), failed["error"]
    assert kind == "disk full" or "traceback" not in failed, failed
    assert code == 1, text
    assert "cli/app.py" not in text, "the sweep itself ends without a traceback"
    assert f"FAILED ({kind})" in text
    assert [s["state"] for s in found.values()] == ["done"], text
    check_nothing_left(setting.lab)


def check_nothing_left(lab: Lab) -> None:
    assert processes(lab.folder) == {}
    ports = set()
    for log in lab.outputs.rglob("server.log"):
        with log.open() as f:
            ports |= set(re.findall(r"--port (\d+)", f.readline()))
    assert [p for p in ports if not is_free("127.0.0.1", int(p))] == []


def check_healed(setting: Setting, words: str, real_too: bool = False) -> None:
    """The same command, unharmed, runs the victim only. That is the sweep's part: seen once with the real server."""
    if setting.real and not real_too:
        return
    others = len(points(setting.lab)) - 1
    code, text = setting.sweep(words)
    assert code == 0, text
    assert text.count("done already") == others
    assert {s["state"] for s in points(setting.lab).values()} == {"done"}
    check_nothing_left(setting.lab)


MAIN = "sglang.launch_server"
ROLES = [MAIN, *(pytest.param(r, marks=pytest.mark.long) for r in ("sglang::scheduler", "sglang::detokenizer"))]


def skip_unless_it_has(setting: Setting, role: str) -> None:
    if not setting.real and role != MAIN:
        pytest.skip("the engine is one process")


@pytest.mark.parametrize("role", ROLES)
def test_a_server_that_is_killed_in_a_request(setting: Setting, role: str) -> None:
    skip_unless_it_has(setting, role)
    victim = setting.victim()
    with at_work(signalled(signal.SIGKILL, role), victim):
        swept = setting.sweep(setting.lengths)
    # SGLang ends itself some seconds after it has lost a worker, if it sees it at all
    fate = r"Its process ended with code 137\."
    if role != MAIN:
        fate = rf"({fate}|Its process {role} is gone, so it was stopped\.)"
    check(setting, swept, victim, "killed", rf"(?s){fate} Last lines of .*Decode batch", 1)
    check_healed(setting, setting.lengths, real_too=role == MAIN)


@pytest.mark.parametrize("role", ROLES[:2])
def test_a_server_that_is_stopped_in_a_request(setting: Setting, role: str) -> None:
    skip_unless_it_has(setting, role)
    limit = f"server.stall_timeout_s={20 if setting.real else 2}"
    setting = setting.also(limit)
    victim = setting.victim()
    with at_work(signalled(signal.SIGSTOP, role), victim):
        swept = setting.sweep(setting.lengths)
    check(setting, swept, victim, "hung", rf"It hung: no line in its log for {limit} with requests in flight", 2)
    check_healed(setting, setting.lengths)


# two servers where the harm is not the server's: it can end before the next one starts
SERVERS = "server.num_threads=1,2"


@pytest.mark.parametrize(
    "at_once", [pytest.param(True, marks=pytest.mark.long), False], ids=["before the start", "during the start"]
)
def test_a_port_that_another_process_has_taken(setting: Setting, at_once: bool) -> None:
    port = free_port("127.0.0.1")
    setting = setting.also(f"server.port={port}", "suite.max_new_tokens=8")
    victim, thief = setting.victim("num_threads=1"), Thief(port, at_once)
    with at_work(thief.harm, victim, thief.undo):
        swept = setting.sweep(SERVERS)
    said = rf"server\.port={port} on 127.0.0.1 is taken" if at_once else rf":{port} is answered by another process"
    check(setting, swept, victim, "port taken", said, 3)
    check_healed(setting, SERVERS)


def test_a_disk_that_fills_up(setting: Setting) -> None:
    lab = setting.lab
    # whoever enters another mount namespace starts at its root
    setting = setting.also(f"suite.max_new_tokens={setting.tokens}", f"paths.outputs={lab.outputs}")
    with small_disk(lab.outputs, megabytes=16) as (lab.before, lab.outputs):
        victim, ballast = setting.victim("num_threads=1"), Ballast(lab.outputs)
        with at_work(ballast.harm, victim, ballast.undo):
            swept = setting.sweep(SERVERS)
        check(setting, swept, victim, "disk full", "No space left on device", 1)
        check_healed(setting, SERVERS)


def test_a_server_that_floods_its_log(setting: Setting) -> None:
    victim = setting.victim()
    with at_work(flood, victim):
        swept = setting.sweep(setting.lengths)
    check(setting, swept, victim, "log flooded", r"It floods its log \(\d+ MiB in \d+ s\), so it was stopped", 1)
    assert len(status(victim.directory)["error"]) < 20_000
    check_healed(setting, setting.lengths)


@pytest.fixture(scope="module")
def plain_server(known: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(Launch(known, CPU, Spec(), None), tmp_path_factory.mktemp("plain") / "server.log") as client:
        yield client.base_url


@pytest.fixture
def behind(setting: Setting, request: pytest.FixtureRequest) -> Iterator[str]:
    """The base URL of a server of the target, decoding plainly."""
    if setting.real:
        yield request.getfixturevalue("plain_server")
        return
    with fake_sglang(info_of(Launch(setting.target, CPU, Spec(), None))) as url:
        yield url


def at(setting: Setting, url: str) -> Setting:
    return replace(setting, server=("server=url", f"server.url={url}", "server.dtype=float32", "spec=none"))


# what a proxy makes of what the server has said


def no_json(http, said):
    answer(http, 200, b'data: {"text": "brok\xff\xfe\n\ndata: [DONE]\n\n')


def a_web_page(http, said):
    answer(http, 200, b"<html><title>Sign in</title>" + b"." * 1000)


def fields_missing(http, said):
    whole = last_message(said)
    del whole["output_ids"]
    message(http, whole)


def another_type(http, said):
    whole = last_message(said)
    whole["meta_info"] |= {"spec_verify_ct": "many"}
    message(http, whole)


def cut_short(http, said):
    answer(http, 200, said[: len(said) // 2], more=len(said))


def cut_and_closed_well(http, said):
    answer(http, 200, said[: len(said) // 2])


def badly_packed(http, said):
    answer(http, 200, b"\x1f\x8b" + gzip.compress(said)[5:], content_encoding="gzip")


def no_states(http, said):
    answer(http, 200, json.dumps({**json.loads(said), "internal_states": ["none"]}).encode())


def away(http, said):
    answer(http, 503, b"no healthy upstream")


def last_message(said):
    return json.loads(said.split(b"data: ")[-2])


def message(http, whole):
    answer(http, 200, f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n".encode())


SPOILT = [
    ("/generate", no_json, "garbled answer", r"/generate: a JSON object is wanted.*'\{\"text\": \"brok"),
]
MORE_SPOILT = [
    ("/generate", away, "unavailable", r"/generate answered 503: no healthy upstream"),
    ("/server_info", a_web_page, "garbled answer", r"/server_info: a JSON object is wanted.*'<html><title>Sign in"),
    ("/generate", a_web_page, "garbled answer", r"/generate: a JSON object is wanted.*'<html><title>Sign in"),
    ("/generate", fields_missing, "garbled answer", r"/generate: no value for output_ids\. This is not what SGLang"),
    ("/generate", another_type, "garbled answer", r"/generate: spec_verify_ct='many': a whole number or null"),
    ("/generate", cut_short, "garbled answer", r"/generate sent an answer that was cut short .*\(RemoteProtocolError"),
    ("/generate", cut_and_closed_well, "garbled answer", r"/generate: a JSON object is wanted"),
    ("/generate", badly_packed, "garbled answer", r"/generate sent an answer that was cut short .*\(DecodingError"),
    ("/server_info", no_states, "garbled answer", r"/server_info: internal_states=\['none'\]: a list of objects"),
    ("/health", away, "unavailable", r"/health answered 503: no healthy upstream"),
    ("/health", reset, "server died", r"/health does not answer \(RemoteProtocolError"),
]


BEFORE_THE_REAL_ONE = (no_json, cut_short)


@pytest.mark.parametrize(
    ("path", "spoil", "kind", "error"),
    [
        pytest.param(*p, id=f"{p[0]} {p[1].__name__}", marks=[] if p in SPOILT else [pytest.mark.long])
        for p in [*SPOILT, *MORE_SPOILT]
    ],
)
def test_a_proxy_that_spoils_answers(
    setting: Setting, behind: str, path: str, spoil: Spoil, kind: str, error: str
) -> None:
    if setting.real and spoil not in BEFORE_THE_REAL_ONE:
        pytest.skip("what the proxy sends does not depend on who is behind it")
    victim, spoils = setting.victim(), threading.Event()
    spoils.set()
    with proxy(behind, path, spoil, lambda: spoils.is_set() and victim.running()) as url:
        setting = at(setting, url)
        check(setting, setting.sweep(setting.lengths), victim, kind, error, 2)
        spoils.clear()
        check_healed(setting, setting.lengths)


def test_a_server_that_is_away_for_moments_is_waited_for(setting: Setting, behind: str) -> None:
    """Every request of every point is refused in turn by 503 and by a broken connection before it is let through."""
    count = itertools.count()

    def flap(http, said):
        (away if next(count) % 2 else reset)(http, said)

    turn = itertools.cycle([True, True, False])
    with proxy(behind, "/", flap, lambda: next(turn)) as url:
        setting = at(setting, url).also("suite.concurrency=1")
        code, text = setting.sweep(setting.lengths)
    assert code == 0, text
    assert [(s["state"], s["attempts"]) for s in points(setting.lab).values()] == [("done", 1)] * 2
    assert next(count) > 20
