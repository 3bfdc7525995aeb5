"""Kinds of failure: the words of real servers and systems, and how often each is tried again."""

from __future__ import annotations

import pytest

from eagle_lab.sweep.failures import kind, retries


@pytest.mark.parametrize(
    ("error", "name", "tries"),
    [
        ("the server died at start. ...\n  OSError: [Errno 98] address already in use", "port taken", 2),
        ("server.port=30000 on 127.0.0.1 is taken by another process.", "port taken", 2),
        ("[Errno 28] No space left on device: '/out/requests.jsonl'", "disk full", 0),
        ("stopped answering.\n  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "out of memory", 0),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "out of memory", 0),
        ("CUDA error: an illegal memory access was encountered", "CUDA error", 1),
        ("stopped answering in a request (ReadError). It hung: no line in its log for", "hung", 1),
        ("/generate: silent for server.request_timeout_s=600.", "hung", 1),
        ("stopped answering in a request (ReadError). Its process ended with code -9.", "killed", 0),
        ("the point's process was killed by signal SIGKILL", "killed", 0),
        ("stopped answering in a request (ReadError). Its process ended with code 1.", "server died", 1),
        ("the server died at start. Its process ended with code 1.", "server died", 1),
        ("the server died at start. It floods its log (80 MiB in 1 s), so it was stopped.", "log flooded", 0),
        ("It hung: no line. No space left on device for its log. Last lines of /out/server.log:", "disk full", 0),
        ("/flush_cache does not answer within 60 s. Its process still runs.", "hung", 1),
        ("/health does not answer (ConnectError: refused).", "server died", 1),
        ("/generate answered 503: no healthy upstream", "unavailable", 1),
        ("/generate sent an answer that was cut short or is no HTTP (RemoteProtocolError: x).", "garbled answer", 1),
        ("was cut short or is no HTTP (RemoteProtocolError: x). Its process ended with code 1.", "server died", 1),
        ("/server_info: a JSON object is wanted, and this is not what SGLang answers: '<html>'", "garbled answer", 1),
        ("speculation changes greedy answers (3 of 32 prompts).", "refused", 0),
        ("the server feeds the head hidden states 576 wide, 1728 = 3 x 576 are wanted.", "refused", 0),
    ],
)
def test_kind(error: str, name: str, tries: int) -> None:
    assert (kind(error), retries(kind(error))) == (name, tries)
