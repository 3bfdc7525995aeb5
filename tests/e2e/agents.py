"""Who does harm to one point of a sweep, from outside: through /proc, its port, its disk, or a proxy."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.sweep.status import status
from tests.fake_sglang import listening

POLL_S = 0.02
FLOOD = 400 << 20


def processes(folder: Path) -> dict[int, str]:
    """Process ids and command lines of all that the lab in this folder has started, at any depth.

    By the environment that they inherit, or by their log: a process that gives itself a title loses its environment.
    """
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if not entry.name.isdigit():
                continue
            environment, log = (entry / "environ").read_bytes(), (entry / "fd/1").readlink()
            if f"EAGLE_LAB_CACHE={folder}".encode() in environment or log.is_relative_to(folder):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


HEALTH_STEPS = 12


class Victim:
    """The point of a sweep that the harm is meant for."""

    def __init__(self, folder: Path, outputs: Path, name: str) -> None:
        self.folder, self.outputs, self.name = folder, outputs, name

    @property
    def directory(self) -> Path:
        (found,) = (self.outputs / "sweeps").glob(f"*/*{self.name}*")
        return found

    def running(self) -> bool:
        # before the sweep has made it, and while its files are being replaced
        with suppress(ValueError, LabError):
            return status(self.directory)["state"] == "running"
        return False

    def server(self, role: str = "sglang.launch_server") -> int | None:
        """Process id of this role of its server: the main process, or one that SGLang gives a title."""
        found = {pid: words for pid, words in processes(self.folder).items() if "warden.py" not in words}
        return next((pid for pid, words in sorted(found.items()) if role in words), None)

    def log(self) -> Path | None:
        """Of its server, once that decodes what the suite asks: a health check is a step or two."""
        pid = self.server()
        with suppress(OSError, TypeError):
            log = self.outputs.joinpath(*Path(f"/proc/{pid}/fd/1").readlink().parts[-3:])
            with log.open("rb") as f:
                return log if f.read(1 << 20).count(b"Decode batch") > HEALTH_STEPS else None
        return None


Harm = Callable[[Victim], None]
"""Called again and again while the point runs."""


@contextmanager
def at_work(harm: Harm, victim: Victim, undo: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within the block: `harm` while the victim runs, `undo` as soon as it does not."""
    end = threading.Event()

    def work() -> None:
        while not end.wait(POLL_S):
            if victim.running():
                harm(victim)
            else:
                undo()
        undo()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def signalled(sent: signal.Signals, role: str) -> Harm:
    """Sends the signal once to each server that decodes."""
    hit: set[int] = set()

    def harm(victim: Victim) -> None:
        pid = victim.server(role)
        if pid is not None and pid not in hit and victim.log():
            hit.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, sent)

    return harm


def flood(victim: Victim) -> None:
    log = victim.log()
    if log is None:
        return
    with log.open("ab") as f:
        while victim.running() and log.stat().st_size < FLOOD:
            f.write((b"W" * 99 + b"\n") * 10_000)


class Thief:
    """Takes the port, at once or when the server that wants it has started; answers 200 to everything."""

    def __init__(self, port: int, at_once: bool) -> None:
        self.port, self.at_once = port, at_once
        self.http: ThreadingHTTPServer | None = None

    def harm(self, victim: Victim) -> None:
        if self.http is None and (self.at_once or victim.server()):
            with suppress(OSError):  # the server was faster
                self.http = ThreadingHTTPServer(("127.0.0.1", self.port), _Nobody)
                threading.Thread(target=self.http.serve_forever).start()

    def undo(self) -> None:
        if self.http is not None:
            self.http.shutdown()
            self.http.server_close()
            self.http = None


class _Nobody(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>It works!</html>")


@contextmanager
def small_disk(mount: Path, megabytes: int) -> Iterator[tuple[tuple[str, ...], Path]]:
    """(words before a command that shall see a small disk at `mount`, the same place as seen from here).

    It lies in a mount namespace of its own, so nothing is left of it when its holder is gone.
    """
    mount.mkdir()
    script = f"mount -t tmpfs -o size={megabytes}m none '{mount}' && echo mounted && cat"
    with subprocess.Popen(["unshare", "-rm", "sh", "-c", script], stdin=-1, stdout=-1, stderr=-2, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        said = holder.stdout.readline()
        if said != "mounted\n":
            pytest.skip(f"no tmpfs can be mounted here: {said.strip()}")
        words = ("nsenter", "--preserve-credentials", "-U", "-m", "-t", str(holder.pid))
        try:
            yield words, Path(f"/proc/{holder.pid}/root{mount}")
        finally:
            holder.stdin.close()


class Ballast:
    """Fills the disk that the server's log lies on."""

    def __init__(self, disk: Path) -> None:
        self.file = disk / "ballast"

    def harm(self, victim: Victim) -> None:
        if not victim.log():
            return
        with suppress(OSError), self.file.open("ab", buffering=0) as f:
            while f.write(bytes(4096)):
                pass

    def undo(self) -> None:
        self.file.unlink(missing_ok=True)


Spoil = Callable[[BaseHTTPRequestHandler, bytes], None]
"""Answers a request of the victim in its own way; the bytes are what the server behind would have said."""


@contextmanager
def proxy(behind: str, path: str, spoil: Spoil, hit: Callable[[], bool]) -> Iterator[str]:
    """Base URL of a proxy: requests of this path are spoilt while `hit()` holds, all others are passed on."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            self.pass_on(None)

        def do_POST(self):
            self.pass_on(self.rfile.read(int(self.headers.get("content-length") or 0)))

        def pass_on(self, body):
            headers = {"content-type": self.headers.get("content-type", "")}
            said = httpx.request(self.command, behind + self.path, content=body, headers=headers, timeout=60)
            with suppress(BrokenPipeError):  # one spoilt answer ends all requests
                if self.path.startswith(path) and hit():
                    spoil(self, said.content)
                    self.close_connection = True
                else:
                    answer(self, said.status_code, said.content)

    with listening(Handler) as url:
        yield url


def answer(http: BaseHTTPRequestHandler, status: int, content: bytes, more: int = 0, **headers: str) -> None:
    """more: bytes that are promised and never sent."""
    http.send_response(status)
    http.send_header("content-length", str(len(content) + more))
    for name, value in headers.items():
        http.send_header(name.replace("_", "-"), value)
    http.end_headers()
    http.wfile.write(content)


def reset(http: BaseHTTPRequestHandler, _: bytes) -> None:
    http.connection.shutdown(socket.SHUT_RDWR)
