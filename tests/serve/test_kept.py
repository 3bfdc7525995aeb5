"""Servers that are kept between blocks, watched while they work, and alone on the GPU where they are timed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from eagle_lab.config.errors import ServingFault
from eagle_lab.config.schema import ServerKind
from eagle_lab.serve import process as process_module
from eagle_lab.serve.process import members, serving, sharing
from tests.serve.conftest import gone


def test_a_kept_server_serves_the_next_block_and_ends_with_the_sharing(plain, fake, group, tmp_path):
    fake()
    with sharing():
        for name in ("a", "b"):
            with serving(plain, tmp_path / name, keep=True) as client:
                assert client.healthy()
        assert len(group) == 1
        assert (tmp_path / "b").read_text() == f"the server of {tmp_path / 'a'}, kept\n"
        # another launch: the first server is gone before the second starts
        with serving(replace(plain, hidden_states=True), tmp_path / "c", keep=True):
            assert [bool(members(g)) for g in group] == [False, True]
        with serving(plain, tmp_path / "d"):
            assert [bool(members(g)) for g in group] == [False, False, True]
        assert not members(group[2])
    assert not any(members(g) for g in group)


def test_without_sharing_nothing_is_kept(plain, fake, group, tmp_path):
    fake()
    with serving(plain, tmp_path / "a", keep=True):
        pass
    assert not members(group[0])


def test_a_server_on_which_something_failed_is_not_kept(plain, fake, group, tmp_path):
    fake()
    with sharing():
        with pytest.raises(KeyError), serving(plain, tmp_path / "a", keep=True):
            raise KeyError
        assert not members(group[0])
        with serving(plain, tmp_path / "b", keep=True) as client:
            assert client.healthy()
        assert len(group) == 2


def test_a_kept_server_that_died_is_started_anew(plain, fake, group, tmp_path):
    fake()
    with sharing():
        with serving(plain, tmp_path / "a", keep=True):
            pass
        os.killpg(group[0], signal.SIGKILL)
        assert gone(group[0])
        with serving(plain, tmp_path / "b", keep=True) as client:
            assert client.healthy()
    assert len(group) == 2


def test_a_server_that_hangs_midway_is_stopped_and_named(plain, fake, group, tmp_path):
    # it answers /health, and takes a /generate request without ever answering it
    fake("http.server.BaseHTTPRequestHandler.do_POST = lambda self: time.sleep(600)")
    launch = replace(plain, server=replace(plain.server, stall_timeout_s=1.0))
    began = time.monotonic()
    with (
        pytest.raises(ServingFault, match=r"It hung: no line in its log for server.stall_timeout_s=1 "),
        serving(launch, tmp_path / "log") as client,
    ):
        client.generate([[1]], max_new_tokens=2)
    assert time.monotonic() - began < 20
    assert not members(group[0])


def test_an_idle_server_does_not_hang(plain, fake, group, tmp_path):
    fake()
    launch = replace(plain, server=replace(plain.server, stall_timeout_s=0.2))
    with serving(launch, tmp_path / "log") as client:
        time.sleep(1)
        assert client.healthy()


def test_timed_servers_have_the_gpu_to_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(process_module.tempfile, "gettempdir", lambda: str(tmp_path))
    held = """
import sys, tempfile
from eagle_lab.config.schema import Server, ServerKind
from eagle_lab.serve.process import device
tempfile.gettempdir = lambda: sys.argv[1]
with device(ServerKind.gpu, alone=False):
    print("held", flush=True)
    sys.stdin.read()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        with process_module.device(ServerKind.gpu, alone=False):
            pass  # two untimed ones side by side
        entered = threading.Event()

        def timed():
            with process_module.device(ServerKind.gpu, alone=True):
                entered.set()

        thread = threading.Thread(target=timed)
        thread.start()
        assert not entered.wait(1)
    finally:
        other.communicate()
    thread.join(20)
    assert entered.is_set()


def test_a_server_that_loses_one_of_its_processes_is_stopped_and_named(plain, fake, group, tmp_path, monkeypatch):
    monkeypatch.setattr(process_module, "ALONE_S", 1.0)
    fake(
        "subprocess.Popen(['sglang::helper', '600'], executable='/bin/sleep')\n"
        "http.server.BaseHTTPRequestHandler.do_POST = lambda self: time.sleep(600)"
    )
    with serving(plain, tmp_path / "log") as client:
        (helper,) = (pid for pid in members(group[0]) if process_module._worker(pid))
        os.kill(helper, signal.SIGKILL)
        with pytest.raises(
            ServingFault, match=r"Its process sglang::helper is gone, so it was stopped\. Last lines of"
        ):
            client.generate([[1]], max_new_tokens=2)
    assert not members(group[0])
