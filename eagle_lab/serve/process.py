"""The life of a server: started in its own session, waited for, watched while it works, always stopped."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.schema import Server, ServerKind
from eagle_lab.config.stage import locked
from eagle_lab.serve.client import Client
from eagle_lab.serve.launch import Launch, argv, command_line, environment
from eagle_lab.serve.progress import say
from eagle_lab.serve.running import check_running

WARDEN = Path(__file__).resolve().parent / "warden.py"
PORTS = range(20_000, 32_768)
"""Below the kernel's ephemeral ports, and below 55536: SGLang also takes port + 10000."""
POLL_S = 0.25
STOP_S = 1.0
"""After SIGTERM. SGLang looks at it every 5 s, drains what is running (nothing is) and kills its own tree, as we do
then: waiting for it would cost 5 s per server and save nothing."""
DYING_S = 2.0
ALONE_S = 5.0
"""SGLang ends itself within a second when its scheduler dies, and not at all when its detokenizer does."""
TAIL_LINES, TAIL_BYTES = 20, 1 << 14
FULL_BYTES = 1 << 16
"""A disk with less room than this cannot take the next lines of a log."""
LOG_BYTES, LOG_BYTES_PER_S = 1 << 26, 1 << 20
"""A log may have so many bytes and so many more per second of its server's life. SGLang's start says less than 1 MB; a
line per decoding step is 0.1 MB/s at 300 steps/s."""


def check_machine(server: Server) -> None:
    """Raises LabError for a GPU server that this machine cannot run; SGLang would say so late, and in a traceback."""
    if server.kind is not ServerKind.gpu:
        return
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < server.tp:
        raise LabError(
            f"server=gpu with server.tp={server.tp}: torch sees {found} GPU(s) here. Use server=cpu, or server=url "
            "server.url=http://host:port for a server that runs elsewhere."
        )


class _Kept:
    """The server that a `sharing` block holds open."""

    def __init__(self) -> None:
        self.launch: Launch | None = None
        self.log = Path()
        self.stack = ExitStack()
        self.client: Client | None = None

    def take(self, launch: Launch, log: Path) -> Client:
        if self.client is not None and self.launch == launch and self.client.healthy():
            if log != self.log:
                log.write_text(f"the server of {self.log}, kept\n", encoding="utf-8")
            return self.client
        self.drop()
        self.client = self.stack.enter_context(_started(launch, log))
        self.launch, self.log = launch, log
        return self.client

    def drop(self) -> None:
        self.client = None
        self.stack.close()


_kept: _Kept | None = None


def stop_kept() -> None:
    """Stops the server that a `sharing` block holds open, if any: its memory is wanted."""
    if _kept is not None:
        _kept.drop()


@contextmanager
def sharing() -> Iterator[None]:
    """Within this block the last `keep` server stays up for the next `serving` block that asks for the same launch.

    A start costs 14 s on a CPU and 75 s on a GPU; points that differ in prompts, length or concurrency need one.
    """
    global _kept
    if _kept is not None:  # the outer block holds it
        yield
        return
    _kept = _Kept()
    try:
        yield
    finally:
        kept, _kept = _kept, None
        kept.drop()


@contextmanager
def serving(launch: Launch, log: Path, *, keep: bool = False) -> Iterator[Client]:
    """A client of a healthy server that runs exactly `launch`.

    The server is gone afterwards, whatever happens; with `keep`, in a `sharing` block, it stays unless the body failed.
    log: gets the command and all that the server says. A server that already runs (kind url) is left running.
    Raises LabError for a launch that cannot be right, a GPU that is not there or a port that is taken, ServingFault
    (with the server's last words) for a server that dies, hangs or is not healthy within start_timeout_s.
    """
    if _kept is not None and keep and launch.server.kind is not ServerKind.url:
        kept = _kept
        try:
            yield kept.take(launch, log)
        except BaseException:
            kept.drop()
            raise
        return
    stop_kept()  # two at once would share memory and cores
    with _started(launch, log) as client:
        yield client


@contextmanager
def _started(launch: Launch, log: Path) -> Iterator[Client]:
    server = launch.server
    if server.kind is ServerKind.url:
        client = Client.at(server)
        client.check_health()
        check_running(client.info(), launch)
        yield client
        return
    check_machine(server)
    port = server.port or free_port(server.host)
    if not is_free(server.host, port):
        raise LabError(
            f"server.port={port} on {server.host} is taken by another process. Stop it, give another server.port, or "
            "drop server.port to get a free one."
        )
    with device(server.kind, launch.alone):
        _give_back()
        drafts = f", {launch.spec.num_draft_tokens} draft tokens" if launch.head else ""
        say(f"server ({launch.spec.kind.value}{drafts}) starts, log: {log}")
        process = start(launch, port, log)
        watch = None
        try:
            client = Client(f"http://{server.host}:{port}", server.request_timeout_s)
            watch = Watch(client, process, log, server.stall_timeout_s)
            client.explain = watch.autopsy
            _wait_healthy(watch, port, server.start_timeout_s)
            say(f"server is up after {time.monotonic() - watch.began:.0f} s")
            yield client
        finally:
            if watch:
                watch.end.set()
            stop(process)


def _give_back() -> None:
    """Frees what torch's allocator has cached here: SGLang sizes its pools by what it finds free, and else dies."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def device(kind: ServerKind, alone: bool) -> Iterator[None]:
    """The machine's GPUs: to itself for a server that is timed, shared among those that are not. Waits, and says so.

    A CPU is nobody's alone: tests and other work run there anyway, and its speed says nothing of a GPU.
    """
    if kind is not ServerKind.gpu:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"eagle_lab-gpu-{os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}"
    path.mkdir(exist_ok=True)
    with locked(path, shared=not alone):
        yield


class Watch:
    """Stops a server that hangs, floods its log, or has lost one of its processes.

    SGLang logs every decode step here, so a log that is silent for `stall_s` seconds with requests in flight is a hang
    (a stopped process, a deadlocked kernel), which HTTP alone would show only after request_timeout_s.
    """

    def __init__(self, client: Client, process: subprocess.Popen[bytes], log: Path, stall_s: float) -> None:
        self.client, self.process, self.log, self.stall_s = client, process, log, stall_s
        self.verdict = ""
        self.crew: dict[int, str] = {}
        """Process id -> name of the workers that a healthy server has."""
        self.complete = self.began = time.monotonic()
        self.end = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self.end.wait(min(POLL_S, self.stall_s / 4)):
            with suppress(OSError):
                self.verdict = self._judge(self.log.stat())
            if self.verdict:
                stop(self.process)
                return

    def _judge(self, log: os.stat_result) -> str:
        age = time.monotonic() - self.began
        if log.st_size > LOG_BYTES + LOG_BYTES_PER_S * age:
            return f"It floods its log ({log.st_size >> 20} MiB in {age:.0f} s), so it was stopped."
        lost = [name for pid, name in self.crew.items() if name != _worker(pid)]
        if not lost:
            self.complete = time.monotonic()
        elif time.monotonic() - self.complete > ALONE_S:
            return f"Its process {lost[0]} is gone, so it was stopped."
        since = self.client.waiting_since
        if since is not None and time.time() - max(since, log.st_mtime) > self.stall_s:
            return (
                f"It hung: no line in its log for server.stall_timeout_s={self.stall_s:g} with requests in flight, so "
                "it was stopped."
            )
        return ""

    def autopsy(self) -> str:
        """`last_words` of a server that does not answer: its connections close a moment before its process ends."""
        if not self.verdict:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(DYING_S)
        code = self.process.poll()
        fate = "Its process still runs." if code is None else f"Its process ended with code {code}."
        return f"{self.verdict or fate} {last_words(self.log)}"


def start(launch: Launch, port: int, log: Path) -> subprocess.Popen[bytes]:
    """The server's warden, leader of the session and process group that the whole server lives in."""
    command = [sys.executable, "-I", "-S", str(WARDEN), str(os.getpid()), *argv(launch, port)]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"$ {command_line(launch, port)}\n", encoding="utf-8")
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            env=environment(launch, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL to the group by its id; returns when no process of the group is left."""
    try:
        process.terminate()
        deadline = time.monotonic() + STOP_S
        while members(process.pid) and time.monotonic() < deadline:
            process.poll()
            time.sleep(0.05)
    finally:
        while members(process.pid):
            with suppress(ProcessLookupError):  # gone since we looked
                os.killpg(process.pid, signal.SIGKILL)
            process.poll()
            time.sleep(0.02)
        process.wait()


def members(group: int) -> list[int]:
    """Process ids of the group that are alive; a zombie that nobody has reaped does not count."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # pid (comm) state ppid pgrp ...; comm may hold spaces and parentheses
            state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state not in "ZX":
            found.append(int(entry.name))
    return found


def _worker(pid: int) -> str:
    """The name of a live process of SGLang's own ("sglang::scheduler"), else an empty text: a zombie has none."""
    try:
        name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").strip()
    except OSError:
        return ""
    return name if name.startswith("sglang::") else ""


def listens(group: int, port: int) -> bool:
    """Whether a process of the group holds the listening socket of this port: others may answer there too."""
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            # number local remote state queues timer retransmits uid timeout inode ...; 0A is LISTEN
            words = line.split()
            if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{words[9]}]")
    for pid in members(group):
        with suppress(OSError):
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):  # closed since we looked
                    if str(fd.readlink()) in sockets:
                        return True
    return False


def _wait_healthy(watch: Watch, port: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not watch.client.healthy():
        if watch.process.poll() is not None:
            raise ServingFault(f"the server died at start. {watch.autopsy()}")
        if time.monotonic() > deadline:
            raise ServingFault(
                f"the server was not healthy within server.start_timeout_s={timeout_s:g}. {watch.autopsy()}"
            )
        time.sleep(POLL_S)
    watch.crew = {pid: name for pid in members(watch.process.pid) if (name := _worker(pid))}
    if not listens(watch.process.pid, port):
        raise ServingFault(f"{watch.client.base_url} is answered by another process. {watch.autopsy()}")


def last_words(log: Path) -> str:
    """The end of a log, which may be huge, and whether its disk has room for more."""
    with log.open("rb") as f:
        f.seek(max(0, f.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = f.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    full = "No space left on device for its log. " if shutil.disk_usage(log.parent).free < FULL_BYTES else ""
    return f"{full}Last lines of {log}:\n" + "\n".join(f"  {line}" for line in lines)


def is_free(host: str, port: int) -> bool:
    with socket.socket() as s:
        # as the server itself will do; without it a port in TIME_WAIT would count as taken
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
        except OSError as e:
            if e.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise LabError(
                    f"server.host={host}: not an address of this machine ({e.strerror}). Leave it at 127.0.0.1, or "
                    "give 0.0.0.0 to serve other machines."
                ) from e
            return False
    return True


def free_port(host: str) -> int:
    """A port that is free now. Drawn at random: two runs that start at the same moment should not meet."""
    drawn = random.SystemRandom().sample(PORTS, 50)
    for port in drawn:
        if is_free(host, port):
            return port
    raise LabError(f"none of 50 ports between {PORTS.start} and {PORTS.stop} is free on {host}. Give server.port.")
