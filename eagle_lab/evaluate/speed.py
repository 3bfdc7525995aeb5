"""Speed of a run from its requests' clock readings."""

from __future__ import annotations

from typing import Any

import numpy as np


def steady(requests: list[dict[str, Any]]) -> tuple[float, float]:
    """(tokens, seconds) of the steady part of one round of requests.

    It runs from the first request's start to the first end after the last request's start. From then on fewer
    requests are in flight than were asked for, and a small batch is where speculation looks best. Of a request that
    is cut there, tokens are counted as if they came evenly between its first and its last. With one request in flight
    the steady part is everything.
    """
    begin = min(r["started"] for r in requests)
    last_start = max(r["started"] for r in requests)
    close = min(end for r in requests if (end := r["started"] + r["total_s"]) > last_start)
    return sum(_tokens_by(r, close) for r in requests), close - begin


def _tokens_by(request: dict[str, Any], moment: float) -> float:
    count, first = len(request["token_ids"]), request["started"] + request["first_token_s"]
    end = request["started"] + request["total_s"]
    if moment >= end:
        return count
    if moment < first:
        return 0.0
    return 1 + (count - 1) * (moment - first) / (end - first)


def speed(requests: list[dict[str, Any]]) -> dict[str, float]:
    """tok_s (steady part), tok_s_whole (with the tail), tok_s_per_user, and latencies in seconds.

    Turns are asked in rounds: each has its own steady part, and the sums are divided. Inter-token latency is per
    request, (total - first token) / (tokens - 1), since speculation delivers tokens in bursts; requests of one token
    have none.
    """
    rounds = [[r for r in requests if r["turn"] == turn] for turn in sorted({r["turn"] for r in requests})]
    parts = [steady(one) for one in rounds]
    walls = [max(r["started"] + r["total_s"] for r in one) - min(r["started"] for r in one) for one in rounds]
    tokens = sum(len(r["token_ids"]) for r in requests)
    first = [r["first_token_s"] for r in requests]
    between = [
        (r["total_s"] - r["first_token_s"]) / (len(r["token_ids"]) - 1) for r in requests if len(r["token_ids"]) > 1
    ]
    return {
        "tok_s": sum(n for n, _ in parts) / sum(s for _, s in parts),
        "tok_s_whole": tokens / sum(walls),
        "tok_s_per_user": tokens / sum(r["total_s"] for r in requests),
        "ttft_p50": float(np.percentile(first, 50)),
        "ttft_p95": float(np.percentile(first, 95)),
        **{f"itl_p{q}": float(np.percentile(between or [0.0], q)) for q in (50, 95, 99)},
    }
