"""Speed of a run from its requests' clock readings."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

FASTEST = 10
"""Percentile: a tenth of the requests, or lone prompts, are at least so fast. What slows a host comes from outside, for
seconds to minutes: an H200's turned 1.5 x slower and back within one point (docs/serving_gpu.md)."""


def steady(requests: list[dict[str, Any]]) -> tuple[float, float]:
    """(begin, end) of the steady part of one round of requests.

    It runs from the first request's start to the first end after the last request's start. From then on fewer
    requests are in flight than were asked for, and a small batch is where speculation looks best. With one request in
    flight the steady part is everything.
    """
    last_start = max(r["started"] for r in requests)
    ends = [r["started"] + r["total_s"] for r in requests]
    return min(r["started"] for r in requests), min(end for end in ends if end > last_start)


def share(request: dict[str, Any], close: float) -> tuple[float, float]:
    """(tokens, seconds in flight) of a request up to the moment `close`.

    Of a request that is cut there, tokens are counted as if they came evenly between its first and its last.
    """
    count, first = len(request["token_ids"]), request["started"] + request["first_token_s"]
    end = request["started"] + request["total_s"]
    if close >= end:
        return count, request["total_s"]
    if close < first:
        return 0.0, close - request["started"]
    return 1 + (count - 1) * (close - first) / (end - first), close - request["started"]


def _rounds(requests: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Turns are asked in rounds: each has its own steady part and its own tail."""
    return [[r for r in requests if r["turn"] == turn] for turn in sorted({r["turn"] for r in requests})]


def per_prompt(requests: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Prompt id -> [tokens, seconds in flight] within the steady parts, summed over its turns."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in _rounds(requests):
        close = steady(one)[1]
        for r in one:
            found[r["prompt"]] = [x + y for x, y in zip(found[r["prompt"]], share(r, close), strict=True)]
    return dict(found)


def rounds(requests: list[dict[str, Any]]) -> dict[str, float | None]:
    """undisturbed_round_s, seconds of a round in the fastest tenth of the requests; round_spread, the median over it.

    A round is a verify step, or a token without speculation; a request's share of it is its time after its first token,
    other requests' prompts included. Only requests that end in a steady part count, and none of one round.
    """
    taken = []
    for one in _rounds(requests):
        close = steady(one)[1]
        for r in one:
            steps = r["verify_ct"] or len(r["token_ids"]) - 1
            if steps > 1 and r["started"] + r["total_s"] <= close:
                taken.append((r["total_s"] - r["first_token_s"]) / steps)
    if not taken:
        return {"undisturbed_round_s": None, "round_spread": None}
    fast, median = np.percentile(taken, [FASTEST, 50])
    return {"undisturbed_round_s": float(fast), "round_spread": float(median / fast)}


def fastest(seconds: list[float]) -> float:
    """The fastest tenth takes at most this."""
    return float(np.percentile(seconds, FASTEST))


def speed(requests: list[dict[str, Any]]) -> dict[str, float]:
    """tok_s (steady part) and steady_s (how long that is), tok_s_whole (with the tail), tok_s_per_user, and latencies.

    In seconds and tokens per second.
    Inter-token latency is per request, (total - first token) / (tokens - 1), since speculation delivers tokens in
    bursts; requests of one token have none.
    """
    rounds = _rounds(requests)
    parts = [steady(one) for one in rounds]
    walls = [max(r["started"] + r["total_s"] for r in one) - min(r["started"] for r in one) for one in rounds]
    tokens = sum(len(r["token_ids"]) for r in requests)
    first = [r["first_token_s"] for r in requests]
    between = [
        (r["total_s"] - r["first_token_s"]) / (len(r["token_ids"]) - 1) for r in requests if len(r["token_ids"]) > 1
    ]
    steady_s = sum(end - begin for begin, end in parts)
    return {
        "tok_s": sum(n for n, _ in per_prompt(requests).values()) / steady_s,
        "steady_s": steady_s,
        "tok_s_whole": tokens / sum(walls),
        "tok_s_per_user": tokens / sum(r["total_s"] for r in requests),
        "ttft_p50": float(np.percentile(first, 50)),
        "ttft_p95": float(np.percentile(first, 95)),
        **{f"itl_p{q}": float(np.percentile(between or [0.0], q)) for q in (50, 95, 99)},
    }
