"""Proof that the server runs the head as EAGLE-3: not what was asked for, but what it does.

SGLang serves an EAGLE-3 head under --speculative-algorithm EAGLE without an error: the answers stay right, the accept
length drops to 1. The flag is visible in /server_info; the capture of aux hidden states only in the width of the
hidden states that the server returns: aux layers x hidden size, or the bare hidden size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle_lab.config.errors import ServingFault
from eagle_lab.config.model_config import read_head, read_target
from eagle_lab.serve.client import Client, Completion
from eagle_lab.serve.launch import Launch
from eagle_lab.serve.process import serving
from eagle_lab.serve.running import check_info, speculation

WIDTH_TOKENS = 4
COUNTER_TOKENS = 48
"""Long enough for some ten rounds at an accept length of 4."""


def probe(launch: Launch, aux_width: int, prompts: list[list[int]], log: Path) -> dict[str, Any]:
    """Starts the server with hidden states and returns its proof; raises ServingFault naming the fault and the fix.

    aux_width: aux layers x hidden size. prompts: answered greedily one by one; their counters are in the proof, for
    `check_counters` on servers that return no hidden states.
    """
    with serving(launch, log, keep=True) as client:
        return examine(client, launch, aux_width, prompts)


def examine(client: Client, launch: Launch, aux_width: int, prompts: list[list[int]]) -> dict[str, Any]:
    """`probe` on a server that runs already (started with hidden states)."""
    assert launch.head is not None
    assert prompts
    info = client.info()
    asked = speculation(launch)
    check_info(info, asked)
    # the first rows are the prompt's, so it may not be in the cache
    client.flush()
    width = client.generate([prompts[0]], max_new_tokens=WIDTH_TOKENS, return_hidden_states=True)[0].hidden_width
    check_width(width, aux_width, read_target(launch.target)["hidden_size"], launch)
    client.proved = [_counters(ids, done) for ids, done in zip(prompts, _greedy(client, prompts), strict=True)]
    return {"captured_width": width, "version": info.get("version"), **asked, "counters": client.proved}


def check_width(width: int | None, aux_width: int, hidden_size: int, launch: Launch) -> None:
    """Raises ServingFault unless the server returned hidden states as wide as the head's fc wants them."""
    if width == aux_width:
        return
    if width is None:
        raise ServingFault(
            "the server returned no hidden states, so what it feeds the head cannot be seen. It must be started with "
            "--enable-return-hidden-states."
        )
    aux, wanted = width / hidden_size, aux_width // hidden_size
    if width == hidden_size:
        config = read_head(launch.head).get("eagle_config") if launch.head else None
        causes = [
            "the server runs --speculative-algorithm EAGLE with an EAGLE-3 head: start it with EAGLE3",
            f"eagle_config in the head's config.json turns the capture off (it is {config}): use_aux_hidden_state must "
            "be true",
            "the layer ids collapse into one on this target (too few layers): export with at least two distinct ids",
        ]
    else:
        causes = [
            f"the head's config.json names other layer ids than it was trained with ({aux:g} streams captured, "
            f"{wanted} wanted): export it again",
            "an id is outside the target's layers, so its stream is never captured (n - 1 is the last that SGLang "
            "sees)",
            "the head belongs to another target",
        ]
    ranked = "; ".join(f"({i}) {cause}" for i, cause in enumerate(causes, 1))
    raise ServingFault(
        f"the server feeds the head hidden states {width} wide, {aux_width} = {wanted} x {hidden_size} are wanted. "
        f"Likely causes, first the most likely: {ranked}."
    )


def check_counters(client: Client, proof: dict[str, Any]) -> None:
    """The proof's prompts, asked again on a server that is to be timed: the same rounds and the same accepted drafts.

    Not on the very server that gave the proof, where they would take as long as a small suite.
    Such a server returns no hidden states (they cost speed); equal counters on equal prompts show that it drafts with
    the same head in the same way. Raises ServingFault where they differ.
    """
    wanted = proof["counters"]
    if client.proved == wanted:
        return
    found = _greedy(client, [w["prompt_ids"] for w in wanted])
    for number, (want, done) in enumerate(zip(wanted, found, strict=True)):
        got = _counters(want["prompt_ids"], done)
        if got != want:
            here, there = ({k: v for k, v in c.items() if k != "prompt_ids"} for c in (got, want))
            raise ServingFault(
                f"the server that is to be timed drafts differently from the one that was proved (prompt {number}): "
                f"{here} here, {there} there. Another head, other speculation numbers or another target is running: "
                "compare server_info.json with proof.json."
            )


def _greedy(client: Client, prompts: list[list[int]]) -> list[Completion]:
    """One by one, so that no batch changes a rounding."""
    return client.generate(prompts, max_new_tokens=COUNTER_TOKENS, ignore_eos=True)


def _counters(prompt_ids: list[int], done: Completion) -> dict[str, Any]:
    return {
        "prompt_ids": prompt_ids,
        "verify_ct": done.verify_ct,
        "correct_drafts": done.correct_drafts,
        "histogram": done.histogram,
    }
