"""What a measurement should have been: the head replayed over the served tokens, and near ties behind divergences.

Here and not in a package, since it joins training code (train.feed, draft) with rows (evaluate).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_lab.config.errors import ServingFault
from eagle_lab.config.rows import read_requests
from eagle_lab.config.schema import Config, ServerKind, SpecKind
from eagle_lab.config.stage import stage

if TYPE_CHECKING:
    from eagle_lab.cli.stages import ExportedHead
    from eagle_lab.doctor.replay import Replayed
    from eagle_lab.target.locate import LocatedTarget
    from eagle_lab.target.model import TargetModel

FORMAT = 2


def add_expectations(
    config: Config, target: LocatedTarget, head: ExportedHead | None, rows: list[dict[str, Any]]
) -> None:
    """Adds to a bench point's rows what its head promised, and refuses what rounding does not explain.

    On a GPU the target stands in float32 beside the kept server; where both do not fit, the server goes, and where the
    target alone does not, the row says that it is `unchecked`.
    """
    import torch

    from eagle_lab.serve.process import stop_kept

    if head is None or config.server.kind is ServerKind.url or config.suite.temperature > 0:
        return
    for retry in (True, False):
        try:
            _add(config, target, head, *rows)
            return
        except torch.OutOfMemoryError as e:
            if not retry:
                rows[-1]["unchecked"] = f"the target in float32 does not fit on the GPU ({str(e).partition('.')[0]})"
            stop_kept()


def _add(config: Config, target: LocatedTarget, head: ExportedHead, base: dict[str, Any], row: dict[str, Any]) -> None:
    from eagle_lab.doctor.truth import target_model

    # its weights are read once, and only where one of the two needs it
    model = cache(lambda: target_model(config, target, head.aux_layers))
    measurements = Path(config.paths.outputs).resolve() / "measurements"
    row |= _promised(head, config.spec.num_steps)
    # a head of another trainer does not say which layers it was trained with
    if config.suite.replay and config.spec.kind is SpecKind.chain and head.aux_layers:
        row |= _replayed(config, model, head, row, measurements)
    if config.server.kind is ServerKind.gpu and row.get("divergences"):
        _check_ties(config.server.dtype, model(), row, base, measurements)


def _promised(head: ExportedHead, num_steps: int | None) -> dict[str, Any]:
    """The training proxy that the exporter wrote down, cut to the steps that are drafted."""
    cumulative = (head.facts.get("held_out_cumulative") or [])[:num_steps]
    if not cumulative:
        return {}
    return {"proxy_survival": cumulative, "proxy_accept_length": 1 + sum(cumulative)}


def _replayed(
    config: Config, model: Callable[[], TargetModel], head: ExportedHead, row: dict[str, Any], measurements: Path
) -> dict[str, Any]:
    """Columns of the first `suite.replay` requests, served and replayed; a stage of its own, beside the measurement."""
    from eagle_lab.doctor.replay import load_head
    from eagle_lab.doctor.truth import replayed
    from eagle_lab.evaluate import intervals

    key = {"format": FORMAT, "measurement": row["fingerprint"], "head": head.digest, "requests": config.suite.replay}
    with stage(measurements / row["measurement"], "replay", row["spec"], key) as work:
        if work.manifest is None:
            requests = _requests(measurements, row)
            steps = config.spec.num_steps
            assert steps is not None
            ours = load_head(head.path, model().embed_weight)
            found = replayed(ours, model(), requests[: config.suite.replay], steps)
            served, predicted = (_per_prompt(found, which) for which in ("served", "predicted"))
            difference = intervals.accept_length_difference(served, predicted)
            work.finish(
                {
                    "replayed_requests": len(found),
                    "replayed_equal": sum(r.equal for r in found),
                    "replayed_accept_length": intervals.accept_length(predicted).value,
                    "replayed_served_accept_length": intervals.accept_length(served).value,
                    "replayed_difference": difference.value,
                    "replayed_difference_low": difference.low,
                    "replayed_difference_high": difference.high,
                    "replayed_survival": intervals.pooled_survival(r.predicted for r in found),
                    "replayed_served_survival": intervals.pooled_survival(r.served for r in found),
                    "coverage": _coverage(head, requests),
                }
            )
        assert work.manifest is not None
        return {k: v for k, v in work.manifest.items() if k.startswith("replayed_") or k == "coverage"}


def _requests(measurements: Path, row: dict[str, Any]) -> list[dict[str, Any]]:
    return read_requests(measurements / row["measurement"] / "requests.jsonl", row["requests"])


def _per_prompt(found: Sequence[Replayed], which: str) -> dict[str, list[float]]:
    """As intervals.per_prompt: prompt -> [correct drafts, verify steps]."""
    out: dict[str, list[float]] = {}
    for r in found:
        histogram = getattr(r, which)
        sums = out.setdefault(str(r.request["prompt"]), [0.0, 0.0])
        sums[0] += sum(k * n for k, n in enumerate(histogram))
        sums[1] += sum(histogram)
    return out


def _coverage(head: ExportedHead, requests: list[dict[str, Any]]) -> float:
    """Share of the served tokens that the head can draft at all: those in its draft vocabulary."""
    from eagle_lab.doctor.replay import draftable

    known = draftable(head.path)
    tokens = [t for r in requests for t in r["token_ids"]]
    return sum(bool(known[t]) for t in tokens) / len(tokens)


def _check_ties(dtype: str, model: TargetModel, row: dict[str, Any], base: dict[str, Any], measurements: Path) -> None:
    """Gives each divergence its `gap_ulps`; ServingFault for a token that rounding cannot have chosen.

    model: the target in float32. The token is the speculating server's: where it is float32's best, it was plain
    decoding that strayed. Where one is further down than MOST_ULPS, plain decoding's own answers, in which nothing
    speculates, say how far rounding goes: `plain_gap_ulps`.
    """
    from eagle_lab.doctor.near_ties import MARGIN, MOST_PLAIN_ULPS, MOST_ULPS, gap_ulps

    baseline = _requests(measurements, base)
    asked = {(r["prompt"], r["turn"]): r for r in baseline}
    for at in row["divergences"]:
        request = asked[at["prompt"], at["turn"]]
        ids = [*request["prompt_ids"], *request["token_ids"][: at["position"]]]
        ended = at["expected"] is None  # where plain decoding ends, going on is no tie either
        at["gap_ulps"] = gap_ulps(model.next_logits(ids), None if ended else at["found"], dtype)
    allowed = MOST_ULPS
    if any(MOST_ULPS < at["gap_ulps"] < math.inf for at in row["divergences"]):
        row["plain_gap_ulps"] = _plain_gap(dtype, model, base, baseline, measurements)
        if row["plain_gap_ulps"] > MOST_PLAIN_ULPS and not row.get("quantization"):
            raise ServingFault(
                f"{row['spec']}: plain decoding itself answers with a token that is {row['plain_gap_ulps']:.0f} ulps "
                f"of {dtype} below the target's best one. Rounding explains no {MOST_PLAIN_ULPS:.0f}: the server does "
                "not run these weights, or computes something else."
            )
        allowed = max(allowed, MARGIN * row["plain_gap_ulps"])
    wrong = [at for at in row["divergences"] if at["gap_ulps"] > allowed]
    if wrong:
        at = wrong[0]
        raise ServingFault(
            f"{row['spec']}: speculation changes greedy answers, and rounding does not explain it in {len(wrong)} of "
            f"{len(row['divergences'])} prompts. First: prompt {at['prompt']}, turn {at['turn'] + 1}, token "
            f"{at['position']}: plain decoding gives {at['expected']}, this server {at['found']}, {at['gap_ulps']:.1f} "
            f"ulps of {dtype} below the target's best token; {allowed:.1f} are rounding, by plain decoding's own "
            f"answers. Compare measurements/{row['measurement']} (requests.jsonl) with the baseline's; a wrong "
            "verification, another target or a broken cache does this."
        )


def _plain_gap(
    dtype: str, model: TargetModel, base: dict[str, Any], baseline: list[dict[str, Any]], measurements: Path
) -> float:
    """The furthest stray of plain decoding's answers; a stage beside them, since every spec point asks."""
    from eagle_lab.doctor.near_ties import stray_ulps

    key = {"format": FORMAT, "measurement": base["fingerprint"], "dtype": dtype}
    with stage(measurements / base["measurement"], "replay", "plain", key) as work:
        if work.manifest is None:
            worst = 0.0
            for r in baseline:
                tokens = iter(r["token_ids"])
                for part in model.answer_logits(r["prompt_ids"], r["token_ids"]):
                    worst = max(worst, stray_ulps(part, [next(tokens) for _ in part], dtype))
            work.finish({"plain_gap_ulps": worst})
        assert work.manifest is not None
        return float(work.manifest["plain_gap_ulps"])
