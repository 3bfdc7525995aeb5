"""SGLang's command line, endpoints and log without a model: every prompt is answered by t -> t + 1.

Like the real one it is unhealthy at first, logs each decoding step, and goes on when its log cannot be written.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.fake_sglang import answer

IMPORTS_S, WARM_UP_S, STEP_S = 0.5, 0.5, 0.01
DONE = b"data: [DONE]\n\n"

logging.basicConfig(level=logging.INFO, stream=sys.stdout)
logging.raiseExceptions = False
log = logging.getLogger()
options = {k.removeprefix("--").replace("-", "_"): v for k, v in zip(sys.argv[1:], sys.argv[2:], strict=False)}
info = {"version": "0", "speculative_algorithm": None, "internal_states": [{"speculative_algorithm": None}], **options}
began = time.monotonic()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        warm = time.monotonic() - began > WARM_UP_S
        self.send_response(200 if warm else 503)
        self.end_headers()
        self.wfile.write(json.dumps(info).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
        self.send_response(200)
        self.end_headers()
        if not self.path.startswith("/generate"):
            return
        for step in range(body["sampling_params"]["max_new_tokens"]):
            time.sleep(STEP_S)
            log.info("Decode batch, #step: %d", step)
        self.wfile.write(f"data: {json.dumps(answer(body, 0))}\n\n".encode() + DONE)


time.sleep(IMPORTS_S)
ThreadingHTTPServer(("127.0.0.1", int(options["port"])), Handler).serve_forever()
