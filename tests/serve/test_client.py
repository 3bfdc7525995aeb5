"""The client against an HTTP server that says what SGLang says, and what it says when it breaks."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest

from eagle_lab.config.errors import ServingFault
from eagle_lab.serve.client import Client, completion
from eagle_lab.sweep.failures import kind


def answer(ids: list[int], **meta) -> dict:
    stop = {"finish_reason": {"type": "stop", "matched": 2}, "prompt_tokens": 3}
    return {"text": f"text of {ids}", "output_ids": ids, "meta_info": {**stop, **meta}}


class Stub:
    """`reply(body)` yields SSE payloads, bytes as they are; what it was asked is kept. refuse: statuses before that."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.refuse: list[int] = []
        self.pause_s = 0.0
        self.running = self.most = 0
        self.lock = threading.Lock()
        self.reply = lambda body: iter([answer([1]), answer([1, 2])])
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self._send(200, json.dumps({"version": "0", "path": self.path}).encode())

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
                if not self.path.startswith("/generate"):
                    time.sleep(stub.pause_s)
                    self._send(200, b"ok")
                    return None
                with stub.lock:
                    stub.asked.append(body)
                    stub.running += 1
                    stub.most = max(stub.most, stub.running)
                try:
                    if stub.refuse:
                        return self._send(0, b"no healthy upstream")
                    self._stream(stub.reply(body))
                finally:
                    with stub.lock:
                        stub.running -= 1

            def _stream(self, payloads):
                self.send_response(200)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for payload in payloads:
                    if payload is None:
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    data = payload if isinstance(payload, bytes) else f"data: {json.dumps(payload)}\n\n".encode()
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

            def _send(self, status, content):
                status = stub.refuse.pop() if stub.refuse else status
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def client(self, timeout_s: float = 10, explain=None) -> Client:
        return Client(f"http://127.0.0.1:{self.http.server_port}/", timeout_s, explain)


@pytest.fixture
def stub():
    found = Stub()
    yield found
    found.http.shutdown()
    found.http.server_close()


def test_completions_come_in_the_order_of_the_prompts(stub):
    def reply(body):
        time.sleep(0.02 * (5 - body["input_ids"][0]))
        return iter([answer([body["input_ids"][0]])])

    stub.reply = reply
    seen = []
    found = stub.client().generate(
        [[i] for i in range(5)], max_new_tokens=7, concurrency=5, on_done=lambda i, c: seen.append((i, c.token_ids))
    )
    assert [c.token_ids for c in found] == [[0], [1], [2], [3], [4]]
    assert sorted(seen) == [(i, [i]) for i in range(5)]
    assert seen != sorted(seen)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_concurrency_is_bounded_and_used(stub, concurrency):
    def reply(body):
        time.sleep(0.05)
        return iter([answer([1])])

    stub.reply = reply
    stub.client().generate([[1]] * 7, max_new_tokens=1, concurrency=concurrency)
    assert stub.most == concurrency
    assert len(stub.asked) == 7


def test_what_is_asked(stub):
    client = stub.client()
    client.generate([[5, 6]], max_new_tokens=9)
    client.generate(
        [[1], [2]], max_new_tokens=3, temperature=0.7, top_p=0.9, seed=[8, 9], ignore_eos=True, stop_token_ids=[4],
        return_hidden_states=True,
    )  # fmt: skip
    plain, *sampled = stub.asked
    assert plain["input_ids"] == [5, 6]
    assert plain["stream"] is True
    assert "return_hidden_states" not in plain
    assert plain["sampling_params"]["max_new_tokens"] == 9
    assert plain["sampling_params"]["temperature"] == 0.0
    assert not {"sampling_seed", "stop_token_ids"} & set(plain["sampling_params"])
    assert [b["sampling_params"]["sampling_seed"] for b in sampled] == [8, 9]
    assert sampled[0]["sampling_params"]["stop_token_ids"] == [4]
    assert sampled[0]["sampling_params"]["ignore_eos"] is True
    assert sampled[0]["return_hidden_states"] is True


def test_the_first_token_has_its_own_time(stub):
    def reply(body):
        yield answer([1], finish_reason=None)
        time.sleep(0.2)
        yield answer([1, 2])

    stub.reply = reply
    found = stub.client().generate([[1]], max_new_tokens=2)[0]
    assert found.first_token_s < found.total_s - 0.15
    assert found.token_ids == [1, 2]


@pytest.mark.parametrize(
    "names",
    [("spec_num_correct_drafts", "spec_correct_drafts_histogram"), ("spec_accepted_drafts", "spec_accept_histogram")],
)
def test_counters_of_both_spellings(names):
    found = completion([answer([1], spec_verify_ct=16, **{names[0]: 25, names[1]: [7, 1, 0, 8]})], 0.0, 0.1, 0.2)
    assert (found.verify_ct, found.correct_drafts, found.histogram) == (16, 25, [7, 1, 0, 8])


def test_a_plain_server_counts_nothing():
    found = completion([answer([1, 2])], 1.0, 0.1, 0.2)
    assert (found.verify_ct, found.correct_drafts, found.histogram, found.hidden_width) == (0, 0, [], None)
    assert (found.finish_reason, found.prompt_tokens, found.text) == ("stop", 3, "text of [1, 2]")


def test_a_message_after_each_step_tells_its_length(stub):
    def reply(body):
        yield answer([1], finish_reason=None)
        yield answer([1] * 4, finish_reason=None)
        yield answer([1] * 5, spec_verify_ct=2, spec_num_correct_drafts=2)

    stub.reply = reply
    assert stub.client().generate([[1]], max_new_tokens=5, every_step=True)[0].lengths == [1, 4, 5]
    stub.client().generate([[1]], max_new_tokens=5)
    every, few = (b["sampling_params"]["stream_interval"] for b in stub.asked)
    assert every == 1
    assert few > 100_000, "two messages, where the steps are not wanted"


def test_separators_of_unicode_end_no_line(stub):
    """SGLang sends them as they are: its JSON is not escaped to ASCII."""
    text = "one\u2028two\u2029three\x85four"
    whole = json.dumps({**answer([1, 2]), "text": text}, ensure_ascii=False)
    stub.reply = lambda _: iter([f"data: {whole}\n\n".encode()])
    assert stub.client().generate([[1]], max_new_tokens=2)[0].text == text


@pytest.mark.parametrize("states", [[[[0.0] * 6] * 3, [0.0] * 6], [[0.0] * 6, [0.0] * 6]])
def test_width_of_the_hidden_states(states):
    assert completion([answer([1], hidden_states=states)], 0.0, 0.1, 0.2).hidden_width == 6


def test_an_aborted_request_is_a_fault(stub):
    # as SGLang says it of a request that was still waiting: no prompt_tokens, no ids
    stub.reply = lambda body: iter([{"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "why"}}}])
    with pytest.raises(ServingFault, match="/generate was aborted by the server: why"):
        stub.client().generate([[1]], max_new_tokens=1)


def test_a_server_that_dies_midway(stub):
    stub.reply = lambda body: iter([answer([1], finish_reason=None), None])
    with pytest.raises(ServingFault, match=r"was cut short .*\(RemoteProtocolError.*the log says so"):
        stub.client(explain=lambda: "the log says so").generate([[1]] * 4, max_new_tokens=2, concurrency=2)


def test_a_silent_server(stub):
    def reply(body):
        yield answer([1], finish_reason=None)
        time.sleep(2)

    stub.reply = reply
    with pytest.raises(ServingFault, match=r"request_timeout_s=0\.3"):
        stub.client(timeout_s=0.3).generate([[1]], max_new_tokens=2)


@pytest.mark.parametrize("payloads", [[], [{"error": {"message": "bad input"}}], [answer([1], finish_reason=None)]])
def test_an_answer_that_does_not_end(stub, payloads):
    stub.reply = lambda body: iter(payloads)
    with pytest.raises(ServingFault, match="without an answer"):
        stub.client().generate([[1]], max_new_tokens=2)


def changed(**fields) -> dict:
    return {**answer([1]), **fields}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (
            b'data: {"text": "brok\xff\n\n',
            'a JSON object is wanted, and this is not what SGLang answers: \'{"text": "brok',
        ),
        (b"data: " + b"[" * 100_000 + b"\n\n", "a JSON object is wanted, and this is not what SGLang answers: '[[["),
        (b"<html>Sign in</html>\n", "answers: '<html>Sign in</html>'. No SGLang server answers there"),
        ([1], "a JSON object is wanted, and this is not what SGLang answers: '[1]'"),
        (
            {"meta_info": answer([1])["meta_info"]},
            "no value for output_ids, text. This is not what SGLang answers: data: {",
        ),
        (changed(output_ids=["a"]), "output_ids=['a']: a list of whole numbers is wanted"),
        (changed(meta_info=[1]), "meta_info=[1]: an object is wanted"),
        (answer([1], finish_reason="stop"), "finish_reason='stop': an object is wanted"),
        (answer([1], finish_reason={"matched": 2}), "no value for type"),
        (answer([1], prompt_tokens=None), "prompt_tokens=None: a whole number is wanted"),
        (answer([1], spec_verify_ct="3"), "spec_verify_ct='3': a whole number or null is wanted"),
        (answer([1], spec_accept_histogram=[0.5]), "spec_accept_histogram=[0.5]: a list of whole numbers or null"),
        (answer([1], hidden_states=1), "hidden_states=1: a list or null is wanted"),
    ],
)
def test_what_sglang_does_not_answer(stub, payload, said):
    stub.reply = lambda body: iter([payload])
    client = stub.client()
    with pytest.raises(ServingFault) as e:
        client.generate([[1]], max_new_tokens=2)
    assert str(e.value).startswith(f"{client.base_url}/generate: ")
    assert said in str(e.value)
    assert len(str(e.value)) < 1000
    assert kind(str(e.value)) == "garbled answer"


@pytest.mark.parametrize("states", [[[]], [[[]]], ["x"]])
def test_hidden_states_of_no_width(states):
    assert completion([answer([1], hidden_states=states)], 0.0, 0.1, 0.2).hidden_width in (0, 1)


def test_a_server_that_is_away_for_moments(stub):
    stub.refuse = [502, 503, 504]
    assert stub.client().info()["version"] == "0"
    stub.refuse = [502, 503, 504]
    assert stub.client().generate([[1]], max_new_tokens=2)[0].token_ids == [1, 2]
    assert not stub.refuse


@pytest.mark.parametrize("call", [Client.info, Client.check_health, lambda c: c.generate([[1]], max_new_tokens=2)])
def test_a_server_that_stays_away(stub, call):
    stub.refuse = [503] * 100
    with pytest.raises(ServingFault, match=" answered 503: ") as e:
        call(stub.client())
    assert kind(str(e.value)) == "unavailable"
    assert len(stub.refuse) == 96


def test_a_request_that_is_refused_is_not_repeated(stub):
    stub.refuse = [400] * 9
    with pytest.raises(ServingFault, match="/generate answered 400: no healthy upstream"):
        stub.client().generate([[1]], max_new_tokens=2)
    assert len(stub.refuse) == 8


def test_an_address_that_is_none():
    for url in ("http://[", "localhost:1", "gopher://127.0.0.1"):
        assert not Client(url, 1).healthy()
        with pytest.raises(ServingFault, match=r"/server_info does not answer"):
            Client(url, 1).info()


def test_a_server_that_stops_answering_between_requests(stub, monkeypatch):
    monkeypatch.setattr("eagle_lab.serve.client.CALL_TIMEOUT_S", 0.3)
    client = stub.client(explain=lambda: "It hung: says its watch.")
    stub.pause_s = 1
    with pytest.raises(ServingFault, match=r"/flush_cache does not answer within 0\.3 s\. It hung") as e:
        client.flush()
    assert kind(str(e.value)) == "hung"
    assert client.waiting_since is None


def test_an_exception_in_on_done_ends_it(stub):
    def broken(index, done):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        stub.client().generate([[1]] * 20, max_new_tokens=2, concurrency=2, on_done=broken)
    assert len(stub.asked) < 20


def test_nobody_is_there():
    client = Client("http://127.0.0.1:9", 5, lambda: "exit code 1")
    assert not client.healthy()
    with pytest.raises(ServingFault, match=r"/server_info does not answer.*exit code 1"):
        client.info()
    with pytest.raises(ServingFault, match="stopped answering"):
        client.generate([[1]], max_new_tokens=1)


def test_no_prompts_no_requests(stub):
    assert stub.client().generate([], max_new_tokens=1) == []
    assert stub.client().info()["path"] == "/server_info"


def test_requests_may_be_sent_together(stub):
    """10 requests of different lengths, 4 in flight: the next are sent when all four have ended."""
    began = []

    def reply(body):
        began.append(time.monotonic())
        time.sleep(0.1 * (1 + body["input_ids"][0] % 4))
        return iter([answer([1])])

    stub.reply = reply
    client = stub.client()
    client.together = 4
    found = client.generate([[i] for i in range(10)], max_new_tokens=1, concurrency=4)
    assert len(found) == 10
    pauses = [after - before > 0.1 for before, after in pairwise(sorted(began))]
    assert pauses == [i in (3, 7) for i in range(9)]
