"""The life of a server. The fast tests put a small program in SGLang's place; the last ones start the real one."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.schema import Server, ServerKind
from eagle_lab.serve import process as process_module
from eagle_lab.serve.process import PORTS, check_machine, free_port, is_free, last_words, members, serving
from eagle_lab.sweep.failures import kind
from tests.serve.conftest import gone


def test_a_server_lives_as_long_as_the_block(plain, fake, group, tmp_path):
    fake()
    log = tmp_path / "new" / "server.log"
    with serving(plain, log) as client:
        assert client.healthy()
        # warden, server, child
        assert len(members(group[0])) == 3
        assert group[0] != os.getpgid(0)
    assert not members(group[0])
    assert not client.healthy()
    first, *rest = log.read_text().splitlines()
    assert first.startswith("$ env -u SGLANG_SIMULATE_ACC_LEN")
    assert "--model-path" in first
    assert "loading weights unset" in rest


def test_simulated_acceptance_does_not_reach_the_server(plain, fake, group, tmp_path, monkeypatch):
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "4.0")
    fake()
    with serving(plain, tmp_path / "log"):
        pass
    assert "loading weights unset" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_it_is_gone_after_an_exception(plain, fake, group, tmp_path, error):
    fake()
    with pytest.raises(error), serving(plain, tmp_path / "log"):
        raise error("mine")
    assert not members(group[0])


def test_a_server_that_dies_at_start(plain, fake, group, tmp_path):
    fake("print('out of memory', flush=True); sys.exit(7)")
    with (
        pytest.raises(ServingFault, match=r"(?s)died at start.*ended with code 7.*server\.log.*out of memory"),
        serving(plain, tmp_path / "server.log"),
    ):
        pytest.fail("it never was healthy")
    assert not members(group[0])


def test_a_server_that_is_killed_at_start(plain, fake, group, tmp_path):
    fake("os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(ServingFault, match="ended with code 137"), serving(plain, tmp_path / "log"):
        pytest.fail("it never was healthy")


def test_a_server_that_hangs_at_start(plain, fake, group, tmp_path):
    fake("time.sleep(600)")
    hasty = replace(plain, server=replace(plain.server, start_timeout_s=2.0))
    with (
        pytest.raises(ServingFault, match=r"(?s)start_timeout_s=2.*still runs.*loading weights"),
        serving(hasty, tmp_path / "log"),
    ):
        pytest.fail("it never was healthy")
    assert not members(group[0])


def ask_until_it_fails(client) -> None:
    deadline = time.monotonic() + 20
    while client.healthy() and time.monotonic() < deadline:
        time.sleep(0.1)
    client.info()


def test_a_server_that_dies_midway(plain, fake, group, tmp_path):
    fake("import threading; threading.Timer(2, lambda: os._exit(9)).start()")
    with pytest.raises(ServingFault, match="ended with code 9"), serving(plain, tmp_path / "log") as client:
        ask_until_it_fails(client)
    assert not members(group[0])


def test_a_taken_port_is_named(plain, group, tmp_path):
    with socket.socket() as holder:
        port = free_port("127.0.0.1")
        holder.bind(("127.0.0.1", port))
        holder.listen()
        assert not is_free("127.0.0.1", port)
        taken = replace(plain, server=replace(plain.server, port=port))
        with pytest.raises(LabError, match=f"server.port={port}"), serving(taken, tmp_path / "log"):
            pytest.fail("started on a taken port")
    assert not group
    assert is_free("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_this_machine(host):
    with pytest.raises(LabError, match=f"server.host={host}: not an address of this machine"):
        free_port(host)


@pytest.mark.parametrize(("gpus", "tp"), [(0, 1), (1, 2)])
def test_a_gpu_that_is_not_there_is_missed_before_the_server_starts(plain, group, tmp_path, monkeypatch, gpus, tp):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    launch = replace(plain, server=Server(kind=ServerKind.gpu, tp=tp))
    said = rf"server.tp={tp}: torch sees {gpus} GPU\(s\) here. Use server=cpu"
    with pytest.raises(LabError, match=said), serving(launch, tmp_path / "log"):
        pass
    assert group == []
    assert not (tmp_path / "log").exists()


def test_gpus_that_are_there_and_servers_that_need_none(plain, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check_machine(Server(kind=ServerKind.gpu, tp=2))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    check_machine(plain.server)
    check_machine(Server(kind=ServerKind.url, url="http://127.0.0.1:1"))


def test_a_given_port_is_used(plain, fake, group, tmp_path):
    fake()
    port = free_port("127.0.0.1")
    assert port in PORTS
    with serving(replace(plain, server=replace(plain.server, port=port)), tmp_path / "log") as client:
        assert client.base_url == f"http://127.0.0.1:{port}"


def test_a_running_server_is_used_and_left_running(plain, fake, group, tmp_path):
    fake()
    with serving(plain, tmp_path / "log") as running:
        attached = replace(plain, server=replace(plain.server, kind=ServerKind.url, url=running.base_url))
        with serving(attached, tmp_path / "unused") as client:
            assert client.base_url == running.base_url
        assert running.healthy()
        assert not (tmp_path / "unused").exists()
    with (
        pytest.raises(ServingFault, match=r"/health does not answer \(ConnectError.*Is that server \(server.url\) up"),
        serving(attached, tmp_path / "unused"),
    ):
        pytest.fail("nobody is there")


def test_a_port_that_another_server_takes_while_ours_starts(plain, fake, group, tmp_path, monkeypatch):
    fake()
    with serving(plain, tmp_path / "theirs") as theirs:
        port = int(theirs.base_url.rpartition(":")[2])
        # it was free when we looked
        monkeypatch.setattr(process_module, "is_free", lambda host, port: True)
        fake("time.sleep(600)")
        ours = replace(plain, server=replace(plain.server, port=port))
        with (
            pytest.raises(ServingFault, match=rf":{port} is answered by another process\. Its process still runs"),
            serving(ours, tmp_path / "ours"),
        ):
            pytest.fail("that is the other server")
        assert [bool(members(g)) for g in group] == [True, False]
        assert theirs.healthy()


def test_a_server_that_floods_its_log_while_it_starts(plain, fake, group, tmp_path, monkeypatch):
    monkeypatch.setattr(process_module, "LOG_BYTES", 1 << 20)
    fake("while True: print('W' * 999)")
    with (
        pytest.raises(ServingFault, match=r"It floods its log \(\d+ MiB in \d+ s\), so it was stopped\.") as e,
        serving(plain, tmp_path / "log"),
    ):
        pytest.fail("it never was healthy")
    assert kind(str(e.value)) == "log flooded"
    assert not members(group[0])


def test_last_words_do_not_read_a_whole_log(tmp_path):
    log = tmp_path / "server.log"
    with log.open("wb") as f:
        f.truncate(1 << 40)  # a hole: reading it would take an hour
        f.seek(0, os.SEEK_END)
        f.write(b"".join(b"line %d\n" % i for i in range(30)))
    began = time.monotonic()
    first, *lines = last_words(log).splitlines()
    assert time.monotonic() - began < 5
    assert first == f"Last lines of {log}:"
    assert lines == [f"  line {i}" for i in range(10, 30)]
    log.write_bytes(b"no end of line" * 10_000)
    assert len(last_words(log)) < 20_000


def test_last_words_say_that_the_disk_is_full(tmp_path, monkeypatch):
    log = tmp_path / "server.log"
    log.write_text("last\n")
    monkeypatch.setattr(process_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    assert kind(last_words(log)) == "disk full"


PARENT = """
import sys, time
from pathlib import Path
from eagle_lab.config.schema import Server, ServerKind, Spec
from eagle_lab.serve import process
from eagle_lab.serve.launch import Launch
target, log, script = map(Path, sys.argv[1:4])
if script.exists():
    process.argv = lambda launch, port: [sys.executable, str(script), str(port)]
start = process.start
def told(*args):
    found = start(*args)
    print(found.pid, flush=True)
    return found
process.start = told
server = Server(kind=ServerKind.cpu, dtype="float32", context_length=512, max_running_requests=4, max_total_tokens=4096,
                mem_fraction=0.1, attention_backend="intel_amx")
with process.serving(Launch(target, server, Spec(), None), log):
    print("healthy", flush=True)
    time.sleep(600)
"""


def orphan(target: Path, log: Path, script: Path, sent: signal.Signals, wait_healthy: bool = True) -> tuple[int, int]:
    """(server's group, how many processes it had) of a parent that got this signal while it served."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", PARENT, str(target), str(log), str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as parent:
        try:
            assert parent.stdout is not None
            group = int(parent.stdout.readline())
            if wait_healthy:
                assert parent.stdout.readline() == "healthy\n", log.read_text()[-3000:]
            alive = len(members(group))
            parent.send_signal(sent)
            parent.wait(30)
        finally:
            parent.kill()
    return group, alive


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["kill", "term", "ctrl-c"])
def test_it_is_gone_after_its_parent(plain, fake, tmp_path, sent):
    fake()
    group, alive = orphan(plain.target, tmp_path / "log", tmp_path / "fake.py", sent)
    assert alive == 3
    assert gone(group)


def test_it_is_gone_after_a_parent_killed_during_the_start(plain, fake, tmp_path):
    fake("time.sleep(600)")
    group, _ = orphan(plain.target, tmp_path / "log", tmp_path / "fake.py", signal.SIGKILL, wait_healthy=False)
    assert gone(group)


@pytest.mark.server
def test_the_real_server_is_gone_after_kill_9_of_its_parent(known, tmp_path):
    group, alive = orphan(known.target, tmp_path / "log", tmp_path / "none", signal.SIGKILL)
    # warden, main, scheduler and detokenizer at the least
    assert alive >= 4
    assert gone(group)


@pytest.mark.server
@pytest.mark.long
def test_the_real_server_that_cannot_start(known, tmp_path, group):
    target = tmp_path / "target"
    shutil.copytree(known.target, target)
    (target / "model.safetensors").unlink()
    bad = replace(known, target=target)
    with pytest.raises(ServingFault, match=r"(?s)died at start.*no.*weights"), serving(bad, tmp_path / "log"):
        pytest.fail("it never was healthy")
    assert not members(group[0])
