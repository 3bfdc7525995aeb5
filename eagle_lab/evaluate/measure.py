"""One measurement: one server launch, one suite, one row.

A measurement is a stage keyed by everything that can change its numbers, so the plain-decoding baseline is measured
once and shared by all heads and spec points.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from eagle_lab.config.digest import plain
from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.files import write_json, write_text
from eagle_lab.config.provenance import provenance
from eagle_lab.config.rows import read_requests, read_rows
from eagle_lab.config.schema import Server, ServerKind, Spec, SpecKind
from eagle_lab.config.stage import Stage, stage
from eagle_lab.evaluate import intervals, positions, speed, suites
from eagle_lab.evaluate.hardware import hardware
from eagle_lab.evaluate.suites import Prompts
from eagle_lab.serve import chat
from eagle_lab.serve.client import Client
from eagle_lab.serve.launch import Launch, algorithm
from eagle_lab.serve.probe import check_counters
from eagle_lab.serve.process import serving

FORMAT = 4
"""Raise it when what a row means changes: older measurements are then redone."""
PLACES = ("host", "port", "start_timeout_s", "request_timeout_s", "stall_timeout_s")
"""Server settings that change no number."""
NO_NUMBERS = ("path", "format", "field", "category", "limit", "source", "replay")
"""Suite settings that say where the prompts are (their digest counts) or what is done afterwards."""
WARM_UP_TOKENS = 16
LONE_PROMPTS, LONE_S = 8, 1.0
"""At least so many, and for so long, are timed before a suite and after it. Eight of 30 ms each told little of the
minute between them: an H200's host turns 1.5 x slower and back within seconds (docs/serving_gpu.md)."""


@dataclass(frozen=True)
class Subject:
    """What is measured: names for the tables, digests for the keys."""

    target: str
    target_digest: str
    head: str | None = None
    head_digest: str | None = None
    aux_layers: list[int] | None = None
    """Canonical ids; None when the head's maker did not record them."""


@dataclass(frozen=True)
class Measurement:
    row: dict[str, Any]
    requests: list[dict[str, Any]]
    """As suites.ask returns them: token ids, counters and clock readings of every request."""


def label(spec: Spec) -> str:
    """none, chain_TOKENS or tree_STEPS_TOPK_TOKENS."""
    if spec.kind is SpecKind.none:
        return "none"
    if spec.kind is SpecKind.chain:
        return f"chain_{spec.num_draft_tokens}"
    return f"tree_{spec.num_steps}_{spec.eagle_topk}_{spec.num_draft_tokens}"


def sglang_version(server: Server) -> str:
    """Of the server that will run (asked for, when it runs already)."""
    if server.kind is ServerKind.url:
        return str(Client.at(server).info().get("version"))
    try:
        return version("sglang")
    except PackageNotFoundError as e:
        raise LabError(
            f"server={server.kind.value}: sglang is not installed here: nothing to measure with. Install it (see "
            "README), or use server=url server.url=http://host:port."
        ) from e


def identity(launch: Launch, subject: Subject) -> dict[str, Any]:
    """The part of a stage's key that says what runs and on what."""
    speculates = launch.spec.kind is not SpecKind.none
    # a server elsewhere may have been restarted as something else: nothing of it is taken from disk
    once = {"asked_at": time.time_ns()} if launch.server.kind is ServerKind.url else {}
    return {
        **once,
        "format": FORMAT,
        "target": subject.target_digest,
        "head": subject.head_digest if speculates else None,
        "spec": plain(launch.spec),
        "server": {k: v for k, v in plain(launch.server).items() if k not in PLACES},
        "sglang": sglang_version(launch.server),
        "hardware": hardware(launch.server),
    }


def measure(
    launch: Launch, subject: Subject, prompts: Prompts, root: Path, proof: dict[str, Any] | None = None
) -> Measurement:
    """Serves `launch`, runs the suite, returns its row; taken from disk when the same was measured before.

    proof: what serve.probe.probe found for this head and spec; a timing server whose counters differ from it is a
    ServingFault.
    The directory root/measurements/SPEC-DIGEST holds rows.jsonl, requests.jsonl, server.log and server_info.json, and
    of a timed one lone_prompts.json: the seconds of those before the suite and of those after it.
    """
    launch = replace(launch, seed=seed(prompts) or 0)
    settings = {k: v for k, v in plain(prompts.settings).items() if k not in NO_NUMBERS} | {"seed": seed(prompts)}
    key = {**identity(launch, subject), "suite": prompts.digest, "settings": settings}
    with stage(root, "measurements", label(launch.spec), key) as work:
        if work.manifest is None:
            _run(work, launch, subject, prompts, proof)
        row = read_rows(work.path / "rows.jsonl")[0]
        return Measurement(row, read_requests(work.path / "requests.jsonl", row["requests"]))


def proving(launch: Launch, timed: bool) -> Launch:
    """One server for a point's proof and its measurement: with a head it may return hidden states.

    That costs nothing there, since SGLang captures the states of every verify step for the head anyway
    (EagleVerifyInput.capture_hidden_mode is FULL); a plain server would capture them for nobody.
    """
    return replace(launch, alone=timed, hidden_states=launch.head is not None)


def seed(prompts: Prompts) -> int | None:
    """None at temperature 0: nothing is drawn, so all seeds are one measurement."""
    return prompts.settings.seed if prompts.settings.temperature > 0 else None


def _run(work: Stage, launch: Launch, subject: Subject, prompts: Prompts, proof: dict[str, Any] | None) -> None:
    tokenizer = chat.load_tokenizer(launch.target)
    suites.check_fits(prompts, tokenizer, launch.server.context_length)
    timed = prompts.settings.timed
    launch = proving(launch, timed)
    with serving(launch, work.path / "server.log", keep=True) as client:
        write_json(work.path / "server_info.json", client.info())
        warm_up = suites.first_prompts(prompts, tokenizer, max(2, prompts.settings.concurrency))
        client.generate(warm_up, max_new_tokens=WARM_UP_TOKENS, concurrency=prompts.settings.concurrency)
        if proof is not None:
            check_counters(client, proof)
        before = _lone(client, prompts, tokenizer) if timed else []
        client.flush()
        requests = suites.ask(client, tokenizer, prompts)
        after = _lone(client, prompts, tokenizer) if timed else []
        if timed and prompts.settings.trace and launch.spec.kind is not SpecKind.none:
            requests = suites.traced(client, prompts, requests)
    row = {
        **describe(launch, subject, prompts, proof),
        **acceptance(launch, requests, prompts.settings.max_new_tokens),
        **({**speed.speed(requests), **speed.rounds(requests)} if timed else {}),
        **({"prompt_s": speed.fastest(before + after)} if timed else {}),
        "requests": len(requests),
        "completion_tokens": sum(len(r["token_ids"]) for r in requests),
        "prompts": per_prompt(requests),
        "sglang_version": work.key["sglang"],
        "hardware": work.key["hardware"],
        "fingerprint": work.digest,
        "measurement": work.path.name,
        "provenance": provenance(),
    }
    write_rows(work.path / "requests.jsonl", requests)
    if timed:
        write_json(work.path / "lone_prompts.json", {"before": before, "after": after})
    write_rows(work.path / "rows.jsonl", [row])
    work.finish({"spec": row["spec"], "accept_length": row["accept_length"], "tok_s": row.get("tok_s")})


def _lone(client: Client, prompts: Prompts, tokenizer: Any) -> list[float]:
    """Seconds of the suite's first prompts, each alone on an idle server, again and again.

    The same work for every spec point of a head, since nothing is decoded: it tells how fast the machine itself is.
    """
    ids = suites.first_prompts(prompts, tokenizer, LONE_PROMPTS)
    found: list[float] = []
    while sum(found) < LONE_S:
        client.flush()
        found += [done.first_token_s for done in client.generate(ids, max_new_tokens=1)]
    return found


def per_prompt(requests: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Prompt id -> [correct drafts, verify steps, steady tokens, steady seconds in flight], summed over its turns."""
    shares = speed.per_prompt(requests)
    return {prompt: counts + shares[prompt] for prompt, counts in intervals.per_prompt(requests).items()}


def describe(launch: Launch, subject: Subject, prompts: Prompts, proof: dict[str, Any] | None) -> dict[str, Any]:
    """The columns that say what was measured."""
    spec, settings = launch.spec, prompts.settings
    speculates = spec.kind is not SpecKind.none
    return {
        "spec": label(spec),
        "num_steps": spec.num_steps,
        "eagle_topk": spec.eagle_topk,
        "num_draft_tokens": spec.num_draft_tokens,
        "captured_width": proof["captured_width"] if proof else None,
        "speculative_algorithm": algorithm(launch.head) if speculates and launch.head else None,
        "target": subject.target,
        "target_digest": subject.target_digest,
        "head": subject.head if speculates else None,
        "head_digest": subject.head_digest if speculates else None,
        "aux_layers": subject.aux_layers if speculates else None,
        "suite": settings.name,
        "suite_digest": prompts.digest,
        "suite_source": settings.path or settings.source,
        "max_new_tokens": settings.max_new_tokens,
        "temperature": settings.temperature,
        "seed": seed(prompts),
        "concurrency": settings.concurrency,
        "in_flight": min(settings.concurrency, len(prompts.conversations)),
        "server_kind": launch.server.kind.value,
        "dtype": launch.server.dtype,
        "quantization": launch.server.quantization,
        "tp": launch.server.tp,
        "probe": proof["digest"] if proof else None,
    }


def acceptance(launch: Launch, requests: list[dict[str, Any]], max_new_tokens: int) -> dict[str, Any]:
    """The columns made from the requests' counters.

    Without speculation every step yields one token: accept length 1, exactly. A speculating server without a single
    verify step is a ServingFault.
    """
    if launch.spec.kind is SpecKind.none:
        if any(r["verify_ct"] for r in requests):
            raise ServingFault(
                "spec=none, but the server verifies drafts: it speculates. State the spec that it runs, or restart it."
            )
        one = dict.fromkeys(("accept_length", "accept_length_low", "accept_length_high"), 1.0)
        empty: dict[str, Any] = {
            "histogram": [],
            "survival": [],
            "conditional": [],
            "categories": {},
            "by_position": [],
        }
        nothing = dict.fromkeys(("drift", "drift_low", "drift_high"))
        return {**one, "accept_length_per_request": 1.0, **empty, **nothing}
    try:
        pooled = intervals.accept_length(intervals.per_prompt(requests))
    except ValueError as e:
        raise ServingFault(
            f"{label(launch.spec)}: {e} although speculation was asked for: the server decodes plainly, or every "
            "answer ended with its first token. Look at server.log and at suite.max_new_tokens."
        ) from e
    histogram = intervals.pooled_histogram(r["histogram"] for r in requests)
    drift = positions.drift(requests)
    return {
        "accept_length": pooled.value,
        "accept_length_low": pooled.low,
        "accept_length_high": pooled.high,
        "accept_length_per_request": intervals.per_request(requests),
        "histogram": histogram,
        "survival": intervals.survival(histogram),
        "conditional": intervals.conditional(histogram),
        "categories": categories(requests),
        "by_position": positions.by_position(requests, max_new_tokens),
        "drift": drift.value if drift else None,
        "drift_low": drift.low if drift else None,
        "drift_high": drift.high if drift else None,
    }


def categories(requests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Category -> {accept_length, low, high, requests}; those without one, and without a verify step, are left out."""
    found = {}
    for name in sorted({r["category"] for r in requests if r["category"] and r["verify_ct"]}):
        own = [r for r in requests if r["category"] == name]
        length = intervals.accept_length(intervals.per_prompt(own))
        found[name] = {"accept_length": length.value, "low": length.low, "high": length.high, "requests": len(own)}
    return found


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """All rows at once, or none."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
