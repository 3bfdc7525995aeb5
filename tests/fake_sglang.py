"""An HTTP server that answers as SGLang does when it serves the known-acceptance target with its head."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from eagle_lab.serve.launch import Launch
from eagle_lab.serve.running import speculation
from tests.known_acceptance import AUX, known_histogram

WIDTH = len(AUX) * 64


def info_of(launch: Launch) -> dict[str, Any]:
    """What /server_info of sglang 0.5.20 says of this launch, of what eagle_lab reads."""
    settled = {
        "model_path": str(launch.target),
        "served_model_name": str(launch.target),
        "dtype": launch.server.dtype,
        "context_length": launch.server.context_length,
        "quantization": launch.server.quantization,
        "speculative_draft_model_path": None,
        **{f"speculative_{name}": None for name in ("num_steps", "eagle_topk", "num_draft_tokens")},
        **speculation(launch),
    }
    return {**settled, "version": "0.5.20", "internal_states": [settled]}


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The base URL of an HTTP server on a free port, in a thread of this process."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def fake_sglang(info: Any) -> Iterator[str]:
    """The base URL of a server with this /server_info; every prompt is answered by t -> t + 1."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.say(json.dumps(info).encode() if self.path == "/server_info" else b"")

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
            if not self.path.startswith("/generate"):
                return self.say(b"")
            done = json.dumps(answer(body, info.get("speculative_num_steps") or 0))
            return self.say(f"data: {done}\n\ndata: [DONE]\n\n".encode())

        def say(self, content: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

    with listening(Handler) as url:
        yield url


def answer(body: dict[str, Any], steps: int) -> dict[str, Any]:
    last, tokens = body["input_ids"][-1], body["sampling_params"]["max_new_tokens"]
    histogram = known_histogram(last, tokens, steps) if steps else []
    meta = {
        "finish_reason": {"type": "length"},
        "prompt_tokens": len(body["input_ids"]),
        "spec_verify_ct": sum(histogram),
        "spec_num_correct_drafts": sum(k * n for k, n in enumerate(histogram)),
        "spec_correct_drafts_histogram": histogram,
    }
    if body.get("return_hidden_states"):
        meta["hidden_states"] = [[[0.0] * WIDTH]]
    return {"text": "", "output_ids": list(range(last + 1, last + 1 + tokens)), "meta_info": meta}
