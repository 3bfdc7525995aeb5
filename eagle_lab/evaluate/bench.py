"""A spec point: its baseline, its proof, its measurement, and the check that not one token differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from eagle_lab.config.errors import LabError, ServingFault
from eagle_lab.config.files import check_fields, read_json, write_json
from eagle_lab.config.schema import ServerKind, Spec, SpecKind
from eagle_lab.config.stage import stage
from eagle_lab.evaluate import intervals, lossless, suites
from eagle_lab.evaluate.measure import Measurement, Subject, identity, label, measure, proving
from eagle_lab.evaluate.suites import Prompts
from eagle_lab.serve import chat
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.probe import probe

PROOF_PROMPTS = 2
"""Of 48 tokens each: half a minute of a CPU server with 16 draft tokens."""


def bench_point(launch: Launch, subject: Subject, prompts: Prompts, root: Path, aux_width: int) -> list[dict[str, Any]]:
    """[baseline row, row] of a spec point, or the baseline row alone for spec none; what exists is not run again.

    aux_width: aux layers x hidden size, the width that the server must be seen to capture.
    A server that already runs (kind url) has no baseline; its row has nulls there. The proof is taken on it, so it must
    return hidden states.
    Raises ServingFault where the server does not run what was asked, or where greedy answers differ from the
    baseline's on a CPU in float32.
    """
    if launch.spec.kind is not SpecKind.none and launch.head is None:
        raise LabError(f"spec {label(launch.spec)} needs a head. Give head=/exported/head, or use spec=none.")
    if launch.server.kind is ServerKind.url:
        proof = None if launch.head is None else prove(launch, subject, prompts, root, aux_width)
        return [measure(launch, subject, prompts, root, proof).row]
    baseline = measure(replace(launch, spec=Spec(), head=None), subject, prompts, root)
    base = {**baseline.row, **_against(baseline, baseline)}
    if launch.spec.kind is SpecKind.none:
        return [base]
    proof = prove(launch, subject, prompts, root, aux_width)
    found = measure(launch, subject, prompts, root, proof)
    return [base, {**found.row, **_against(baseline, found), **_losses(launch, prompts, baseline, found)}]


def prove(launch: Launch, subject: Subject, prompts: Prompts, root: Path, aux_width: int) -> dict[str, Any]:
    """The proof that this head is served as EAGLE-3 at this width, from root/probes or taken now.

    Within serve.process.sharing its server goes on to be the measurement's.
    """
    key = {**identity(launch, subject), "aux_width": aux_width}
    with stage(root, "probes", label(launch.spec), key) as work:
        if work.manifest is None:
            tokenizer = chat.load_tokenizer(launch.target)
            ids = suites.first_prompts(prompts, tokenizer, PROOF_PROMPTS)
            found = probe(proving(launch, prompts.settings.timed), aux_width, ids, work.path / "server.log")
            write_json(work.path / "proof.json", {**found, "digest": work.digest})
            work.finish({"aux_width": aux_width})
        file = work.path / "proof.json"
        proof = read_json(file)
        wanted = {"captured_width": int, "digest": str, "counters": list[dict]}
        check_fields(proof, wanted, str(file), f"Remove {work.path} to prove it again.")
        return proof


def _against(baseline: Measurement, found: Measurement) -> dict[str, Any]:
    """Speed beside that of plain decoding with the same suite, concurrency and server settings.

    break_even_accept_length: one verify round costs as much as this many plain tokens, so at the measured cost this
    accept length would run at the baseline's speed.
    """
    if "tok_s" not in found.row:  # not timed
        return {}
    base, own = baseline.row["tok_s"], found.row["tok_s"]
    ratio = intervals.speedup(found.row, baseline.row)
    return {
        "baseline_tok_s": base,
        "baseline_undisturbed_round_s": baseline.row["undisturbed_round_s"],
        "baseline_fingerprint": baseline.row["fingerprint"],
        "speedup": own / base,
        "speedup_low": ratio.low,
        "speedup_high": ratio.high,
        "speedup_per_user": found.row["tok_s_per_user"] / baseline.row["tok_s_per_user"],
        "break_even_accept_length": found.row["accept_length"] * base / own,
    }


def _losses(launch: Launch, prompts: Prompts, baseline: Measurement, found: Measurement) -> dict[str, Any]:
    """How many prompts' greedy answers differ from the baseline's, and where each parts from it.

    On a GPU a batched kernel may round a near tie the other way, so there it is counted; in float32 on a CPU it is a
    fault.
    """
    if prompts.settings.temperature > 0:
        return {"differing_prompts": None, "divergences": None}
    parted = lossless.differences(baseline.requests, found.requests, launch.spec.num_draft_tokens or 0)
    if parted and launch.server.kind is ServerKind.cpu and launch.server.dtype == "float32":
        at = parted[0]
        raise ServingFault(
            f"{label(launch.spec)}: speculation changes greedy answers ({len(parted)} of "
            f"{len(prompts.conversations)} prompts). First: prompt {at['prompt']}, turn {at['turn'] + 1}, token "
            f"{at['position']}: plain decoding gives {at['expected']}, this server {at['found']}. Speculation must be "
            f"lossless here; compare measurements/{baseline.row['measurement']} and "
            f"measurements/{found.row['measurement']} (requests.jsonl)."
        )
    return {"differing_prompts": len(parted), "divergences": parted}
