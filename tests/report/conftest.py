"""Synthetic sweep directories."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

CONDITION = {
    "target": "tiny",
    "target_digest": "t" * 16,
    "suite": "smoke",
    "suite_digest": "s" * 16,
    "max_new_tokens": 64,
    "temperature": 0.0,
    "seed": None,
    "concurrency": 1,
    "server_kind": "cpu",
    "dtype": "float32",
    "quantization": None,
    "tp": 1,
    "sglang_version": "0.5.20",
    "hardware": "box x2",
    "provenance": {"git_sha": "abc", "argv": ["eagle-lab", "bench", "spec=chain_5"]},
}
LATENCY = dict.fromkeys(("tok_s_whole", "tok_s_per_user", "ttft_p50", "ttft_p95", "itl_p50", "itl_p95", "itl_p99"), 0.1)


def baseline(tok_s: float = 20.0, **changes) -> dict:
    row = {
        **CONDITION,
        **LATENCY,
        "spec": "none",
        **dict.fromkeys(("num_steps", "eagle_topk", "num_draft_tokens", "captured_width", "speculative_algorithm")),
        **dict.fromkeys(("head", "head_digest", "aux_layers", "probe")),
        **dict.fromkeys(("accept_length", "accept_length_low", "accept_length_high"), 1.0),
        **{"accept_length_per_request": 1.0, "histogram": [], "survival": [], "conditional": []},
        **{"tok_s": tok_s, "baseline_tok_s": tok_s, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0},
        **{"break_even_accept_length": 1.0, "requests": 2, "completion_tokens": 100},
        **{"categories": {}, "by_position": [], "drift": None, "drift_low": None, "drift_high": None},
        **{"prompts": {"a": [0, 0, 50, 2.5], "b": [0, 0, 50, 2.5]}, "measurement": "none-0", "fingerprint": "0" * 16},
    }
    return {**row, **changes}


def chain(tokens: int, accept: float, tok_s: float, head: str = "h", base: float = 20.0, **changes) -> dict:
    speedup = tok_s / base
    fingerprint = f"{head}{tokens}".ljust(16, "f")
    row = {
        **baseline(base),
        **{"spec": f"chain_{tokens}", "num_steps": tokens - 1, "eagle_topk": 1, "num_draft_tokens": tokens},
        **{"accept_length": accept, "accept_length_low": accept - 0.1, "accept_length_high": accept + 0.1},
        **{"captured_width": 192, "speculative_algorithm": "EAGLE3", "head": "/h", "head_digest": head * 16},
        **{"aux_layers": [2, 4, 5], "histogram": [10, 5, 5], "survival": [0.5, 0.25], "conditional": [0.5, 0.5]},
        **{"tok_s": tok_s, "speedup": speedup, "speedup_low": speedup - 0.05, "speedup_high": speedup + 0.05},
        **{"break_even_accept_length": accept / speedup, "differing_prompts": 0, "divergences": []},
        **{"prompts": {"a": [10, 10, 50, 2], "b": [20, 10, 50, 2]}, "probe": "p" * 16},
        **{"measurement": f"chain_{tokens}-{fingerprint}", "fingerprint": fingerprint},
    }
    return {**row, **changes}


def put(directory: Path, rows: list[dict], state: str | None = "done", **status) -> None:
    directory.mkdir(parents=True)
    if rows:
        (directory / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    if state:
        (directory / "status.json").write_text(json.dumps({"state": state, **status}))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Three points that share a baseline, and one that failed after an earlier success."""
    directory = tmp_path / "grid"
    put(directory / "z_chain_2", [baseline(), chain(2, 1.4, 24.0)])
    put(directory / "a_chain_5", [baseline(), chain(5, 1.8, 26.0)])
    put(directory / "m_none", [baseline()])
    put(directory / "b_chain_9", [baseline(), chain(9, 2.0, 99.0)], "failed", error="the server | died.\nLook.")
    points = [{"point": p.name} for p in sorted(directory.iterdir())]
    argv = ["eagle-lab", "bench", "spec=none,chain_2", "-m"]
    (directory / "plan.json").write_text(json.dumps({"argv": argv, "points": points}))
    return directory


@pytest.fixture
def make() -> SimpleNamespace:
    return SimpleNamespace(baseline=baseline, chain=chain, put=put)
