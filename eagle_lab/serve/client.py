"""A synchronous client of one SGLang server; requests are streamed so that the first token's time is real.

Each request asks for two messages only, the first token and the end (`stream_interval`), unless every step is to be
seen: a message costs the host 0.4 ms of CPU time, and a CPU server's model needs the same cores.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.files import check_fields
from eagle_lab.config.schema import Server

FIRST_AND_LAST = 1 << 20
"""sampling_params.stream_interval: a message at token 1 and at the end (no answer is that long)."""

RETRY_AFTER_S = (0.1, 0.4, 1.0, None)
"""A connection can break although the server is well: uvicorn closes idle ones after 5 s, and 256 opened at once were
seen to be reset on a host with a short accept queue. A proxy answers 502 to 504 while the server behind it is away. The
time lost counts into the request's own times."""
NOT_NOW = (502, 503, 504)
UNREACHABLE = (httpx.HTTPError, httpx.InvalidURL)
CALL_TIMEOUT_S = 60.0
"""Of what is no generation."""
DONE = "data: [DONE]"
TOKENIZE = "/v1/tokenize"
GARBAGE = (ValueError, RecursionError)
"""What json raises."""

COUNTERS = ("spec_verify_ct", "spec_num_correct_drafts", "spec_accepted_drafts")
HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
ANSWER: dict[str, Any] = {"output_ids": list[int], "text": str, "meta_info": dict}
META: dict[str, Any] = {
    **{"prompt_tokens": int, "hidden_states": list | None},
    # absent on a server that does not speculate, and under its other name
    **dict.fromkeys(COUNTERS, int | None),
    **dict.fromkeys(HISTOGRAMS, list[int] | None),
}

OnDone = Callable[[int, "Completion"], None]


@dataclass(frozen=True)
class Completion:
    token_ids: list[int]
    """The completion only, as the server returned it, end-of-turn token included."""
    text: str
    prompt_tokens: int
    finish_reason: str
    """stop or length."""
    verify_ct: int
    """Verification rounds; 0 on a server that does not speculate."""
    correct_drafts: int
    """Accepted drafts over all rounds, bonus tokens not counted."""
    histogram: list[int]
    """Entry k = rounds with exactly k accepted drafts; its length differs from request to request."""
    started: float
    """time.perf_counter() when the request was sent."""
    first_token_s: float
    total_s: float
    lengths: list[int]
    """Tokens so far at each message."""
    hidden_states: list[Any] | None
    """As returned, when they were asked for: first the prompt's rows as one block, then single ones."""

    @property
    def hidden_width(self) -> int | None:
        """Of the returned hidden states."""
        row = self.hidden_states
        while row and isinstance(row[0], list):
            row = row[0]
        return len(row) if row is not None else None


class Client:
    """base_url: http://host:port. timeout_s: longest silence of the server within one request.

    explain: called when the server stops answering; its text (exit code, last log lines) ends the error message.
    """

    def __init__(self, base_url: str, timeout_s: float, explain: Callable[[], str] | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        self.explain = explain
        self.proved: list[dict[str, Any]] | None = None
        """What serve.probe.examine found on this very server."""
        self.together = 1
        """So many requests are sent at once, as soon as so many may be."""
        self.waiting_since: float | None = None
        """time.time() from which on at least one request is in flight; None while there is none."""

    @classmethod
    def at(cls, server: Server) -> Client:
        """Of server=url."""
        return cls(str(server.url), server.request_timeout_s, lambda: "Is that server (server.url) up?")

    def info(self) -> dict[str, Any]:
        """/server_info: the server's arguments, version and internal_states."""
        where, text = f"{self.base_url}/server_info", self._call("GET", "/server_info").text
        found = _object(where, text)
        _check(where, text, found, {"internal_states": list[dict] | None})
        return found

    def check_health(self) -> None:
        """ServingFault unless /health answers 200, by now or within moments."""
        self._call("GET", "/health")

    def healthy(self) -> bool:
        """Whether /health answers 200 by now; the server generates a token for it (0.5 s or more)."""
        try:
            return httpx.get(f"{self.base_url}/health", timeout=30).status_code == 200
        except UNREACHABLE:
            return False

    def flush(self) -> None:
        """Empties the KV cache and zeroes the server's counters; waits for running requests to end."""
        self._call("POST", "/flush_cache", params={"timeout": 30})

    def rendered(self, messages: list[dict[str, str]]) -> list[int]:
        """The tokens that the server makes of these messages by its own chat template (sglang 0.5.20)."""
        where, text = f"{self.base_url}{TOKENIZE}", self._call("POST", TOKENIZE, json={"messages": messages}).text
        found = _object(where, text)
        _check(where, text, found, {"tokens": list[int]})
        return list(found["tokens"])

    def generate(
        self,
        prompts: list[list[int]],
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        concurrency: int = 1,
        seed: int | list[int] | None = None,
        ignore_eos: bool = False,
        stop_token_ids: list[int] | None = None,
        return_hidden_states: bool = False,
        every_step: bool = False,
        on_done: OnDone | None = None,
    ) -> list[Completion]:
        """Completions in the order of the prompts (token ids), at most `concurrency` in flight.

        every_step: ask for a message after each step, which `Completion.lengths` then tells; not for timed requests.
        on_done(index, completion) is called as each one ends. Raises ServingFault when the server dies, refuses a
        request or stays silent for timeout_s; the other requests are cancelled then.
        """
        bodies = []
        for index, ids in enumerate(prompts):
            sampling: dict[str, Any] = {
                "max_new_tokens": max_new_tokens,
                "temperature": temperature,
                "top_p": top_p,
                "ignore_eos": ignore_eos,
                "skip_special_tokens": True,
                "stream_interval": 1 if every_step else FIRST_AND_LAST,
            }
            if stop_token_ids is not None:
                sampling["stop_token_ids"] = stop_token_ids
            if seed is not None:
                sampling["sampling_seed"] = seed[index] if isinstance(seed, list) else seed
            body = {"input_ids": ids, "sampling_params": sampling, "stream": True}
            bodies.append(body | ({"return_hidden_states": True} if return_hidden_states else {}))
        with self._waiting():
            return asyncio.run(self._generate(bodies, concurrency, on_done))

    async def _generate(
        self, bodies: list[dict[str, Any]], concurrency: int, on_done: OnDone | None
    ) -> list[Completion]:
        done: dict[int, Completion] = {}
        waiting = iter(enumerate(bodies))
        workers = min(concurrency, len(bodies))
        gate = _Gate(self.together, workers)
        trusted = httpx.create_ssl_context()

        async def worker() -> None:
            # a connection pool of its own: shared, 512 connections cost 26 ms of CPU time a request, alone 1.7
            async with httpx.AsyncClient(base_url=self.base_url, timeout=self.timeout_s, verify=trusted) as http:
                for index, body in waiting:
                    await gate.passed()
                    done[index] = await self._one(http, body)
                    if on_done is not None:
                        on_done(index, done[index])
            gate.leave()

        await _all_or_first_error([worker() for _ in range(workers)])
        return [done[i] for i in range(len(bodies))]

    async def _one(self, http: httpx.AsyncClient, body: dict[str, Any]) -> Completion:
        started = time.perf_counter()
        for pause in RETRY_AFTER_S:
            try:
                first, messages = await self._stream(http, body)
                break
            except httpx.TimeoutException as e:
                raise ServingFault(
                    f"{self.base_url}/generate: silent for server.request_timeout_s={self.timeout_s:g}.{self._why()}"
                ) from e
            except (httpx.RequestError, httpx.HTTPStatusError) as e:
                if pause is None:
                    raise ServingFault(f"{self._broken(e)}{self._why()}") from e
                await asyncio.sleep(pause)
        ended = time.perf_counter()
        return completion(self._answers(messages), started, first - started, ended - started)

    async def _stream(self, http: httpx.AsyncClient, body: dict[str, Any]) -> tuple[float, list[str]]:
        """(time of the first message, all messages) of one request; each holds all that came before it."""
        first, messages = 0.0, []
        async with http.stream("POST", "/generate", json=body) as response:
            if response.status_code != 200:
                refused = self._refused("/generate", response.status_code, await response.aread())
                if response.status_code in NOT_NOW:
                    raise httpx.HTTPStatusError(refused, request=response.request, response=response)
                raise ServingFault(refused)
            async for line in _lines(response):
                if line and line != DONE:
                    first = first or time.perf_counter()
                    messages.append(line)
        return first, messages

    def _answers(self, messages: list[str]) -> list[dict[str, Any]]:
        """The messages of one /generate, if they are a whole answer; else a ServingFault that shows how one begins."""
        where = f"{self.base_url}/generate"
        answers = [_object(where, m.removeprefix("data: ")) for m in messages]
        meta = answers[-1].get("meta_info") if answers else None
        if not meta or (isinstance(meta, dict) and not meta.get("finish_reason")):
            last = messages[-1][:300] if messages else "no data"
            raise ServingFault(f"{where} ended without an answer: {last}.{self._why()}")
        _check(where, messages[-1], answers[-1], {"meta_info": dict})
        _check(where, messages[-1], meta, {"finish_reason": dict})
        _check(where, messages[-1], meta["finish_reason"], {"type": str})
        if meta["finish_reason"]["type"] == "abort":  # nothing else need be there
            raise ServingFault(f"{where} was aborted by the server: {meta['finish_reason'].get('message', meta)}")
        for text, answer in zip(messages, answers, strict=True):
            _check(where, text, answer, ANSWER)
        _check(where, messages[-1], meta, META)
        return answers

    def _broken(self, e: httpx.HTTPError) -> str:
        if isinstance(e, httpx.HTTPStatusError):
            return str(e)
        cut = isinstance(e, httpx.RemoteProtocolError | httpx.DecodingError)
        what = "sent an answer that was cut short or is no HTTP" if cut else "stopped answering in a request"
        return f"{self.base_url}/generate {what} ({type(e).__name__}: {e})."

    def _call(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        url = self.base_url + path
        with self._waiting():
            for pause in RETRY_AFTER_S:
                try:
                    response = httpx.request(method, url, timeout=CALL_TIMEOUT_S, **kwargs)
                    if response.status_code not in NOT_NOW or pause is None:
                        break
                except httpx.ReadTimeout as e:
                    raise ServingFault(f"{url} does not answer within {CALL_TIMEOUT_S:g} s.{self._why()}") from e
                except UNREACHABLE as e:
                    if pause is None:
                        raise ServingFault(f"{url} does not answer ({type(e).__name__}: {e}).{self._why()}") from e
                time.sleep(pause)
        if response.status_code != 200:
            raise ServingFault(self._refused(path, response.status_code, response.content))
        return response

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.waiting_since = time.time()
        try:
            yield
        finally:
            self.waiting_since = None

    def _refused(self, path: str, status: int, content: bytes) -> str:
        return f"{self.base_url}{path} answered {status}: {content[:500].decode(errors='replace').strip()}"

    def _why(self) -> str:
        return f" {self.explain()}" if self.explain else ""


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines as server-sent events have them. httpx's own also end at U+2028, U+2029 and U+0085, which stand in texts
    as they are (seen once in 1,100 sampled prompts): a message would be cut in two.
    """
    left = b""
    async for part in response.aiter_bytes():
        *whole, left = (left + part).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", errors="replace").rstrip("\r")
    if left:
        yield left.decode("utf-8", errors="replace")


def _object(where: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except GARBAGE:
        found = None
    if not isinstance(found, dict):
        raise ServingFault(
            f"{where}: a JSON object is wanted, and this is not what SGLang answers: {text[:300]!r}. No SGLang server "
            "answers there, or something in between garbles it."
        )
    return found


def _check(where: str, text: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    try:
        check_fields(found, wanted, where, f"This is not what SGLang answers: {text[:300]}")
    except LabError as e:
        raise ServingFault(str(e)) from e


class _Gate:
    """Lets workers through `size` at a time; the last ones when all that are left wait."""

    def __init__(self, size: int, workers: int) -> None:
        self.size, self.workers = size, workers
        self.waiting: list[asyncio.Future[None]] = []

    async def passed(self) -> None:
        self.waiting.append(asyncio.get_running_loop().create_future())
        mine = self.waiting[-1]
        self._open()
        await mine

    def leave(self) -> None:
        self.workers -= 1
        self._open()

    def _open(self) -> None:
        if len(self.waiting) >= min(self.size, self.workers):
            for one in self.waiting:
                if not one.done():  # cancelled with its worker
                    one.set_result(None)
            self.waiting.clear()


async def _all_or_first_error(workers: list[Awaitable[None]]) -> None:
    """Runs all; the first exception cancels the rest and is raised."""
    tasks = [asyncio.ensure_future(w) for w in workers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def completion(answers: list[dict[str, Any]], started: float, first_token_s: float, total_s: float) -> Completion:
    """Reads the messages of one /generate; only the last has counters, whose names differ between SGLang versions."""
    answer = answers[-1]
    meta = answer["meta_info"]
    return Completion(
        token_ids=list(answer["output_ids"]),
        text=answer["text"],
        prompt_tokens=meta["prompt_tokens"],
        finish_reason=meta["finish_reason"]["type"],
        verify_ct=meta.get("spec_verify_ct") or 0,
        correct_drafts=meta.get("spec_num_correct_drafts") or meta.get("spec_accepted_drafts") or 0,
        histogram=meta.get("spec_correct_drafts_histogram") or meta.get("spec_accept_histogram") or [],
        started=started,
        first_token_s=first_token_s,
        total_s=total_s,
        lengths=[len(a["output_ids"]) for a in answers],
        hidden_states=meta.get("hidden_states") or None,
    )
