"""Which (num_steps, eagle_topk, num_draft_tokens) SGLang really runs as asked.

Source: sglang 0.5.15-0.5.20, srt/arg_groups/speculative_hook.py and srt/speculative/eagle_utils.py. A chain with
tokens != steps + 1 is silently rewritten there; a tree outside steps + 1 <= tokens <= 1 + topk + (steps - 1) * topk**2
crashes at the first draft. Both die here instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_lab.config.errors import LabError

if TYPE_CHECKING:
    from eagle_lab.config.schema import Spec


def complete(spec: Spec) -> tuple[int | None, int | None, int | None]:
    """(num_steps, eagle_topk, num_draft_tokens) with a chain's derived values filled in.

    Raises LabError for every triple that SGLang would rewrite, crash on or mislabel.
    """
    given = {"num_steps": spec.num_steps, "eagle_topk": spec.eagle_topk, "num_draft_tokens": spec.num_draft_tokens}
    if spec.kind.value == "none":
        if any(v is not None for v in given.values()):
            raise LabError(f"spec=none takes no speculation numbers, got {_show(given)}. Use spec=chain or spec=tree.")
        return None, None, None
    for key, value in given.items():
        if value is not None and value < 1:
            raise LabError(f"spec.{key}={value}: at least 1 is needed.")
    return _chain(given) if spec.kind.value == "chain" else _tree(given)


def _chain(given: dict[str, int | None]) -> tuple[int, int, int]:
    steps, topk, tokens = given["num_steps"], given["eagle_topk"], given["num_draft_tokens"]
    if topk not in (None, 1):
        raise LabError(f"spec.eagle_topk={topk} on a chain: a chain has topk 1. Use spec=tree for branches.")
    if steps is None and tokens is None:
        raise LabError("spec=chain needs spec.num_draft_tokens (for example 5; num_steps then is 4).")
    steps = tokens - 1 if steps is None and tokens is not None else steps
    assert steps is not None
    tokens = steps + 1 if tokens is None else tokens
    if tokens != steps + 1:
        raise LabError(
            f"spec.num_steps={steps} with spec.num_draft_tokens={tokens} on a chain: SGLang would silently run "
            f"{steps + 1} tokens. Give spec.num_draft_tokens alone (num_steps follows as {tokens - 1})."
        )
    if steps < 1:
        raise LabError(f"spec.num_draft_tokens={tokens} on a chain leaves no draft step; at least 2 is needed.")
    return steps, 1, tokens


def _tree(given: dict[str, int | None]) -> tuple[int, int, int]:
    missing = [k for k, v in given.items() if v is None]
    if missing:
        raise LabError(f"spec=tree states all three numbers; missing: {', '.join('spec.' + k for k in missing)}.")
    steps, topk, tokens = given["num_steps"], given["eagle_topk"], given["num_draft_tokens"]
    assert steps is not None
    assert topk is not None
    assert tokens is not None
    if topk == 1:
        raise LabError("spec.eagle_topk=1 on a tree is a chain. Use spec=chain, or topk of at least 2.")
    low, high = steps + 1, 1 + topk + (steps - 1) * topk**2
    if not low <= tokens <= high:
        raise LabError(
            f"spec.num_draft_tokens={tokens} with num_steps={steps}, eagle_topk={topk}: SGLang needs {low} to {high} "
            f"tokens for this tree. Set spec.num_draft_tokens between {low} and {high}, or change the tree."
        )
    return steps, topk, tokens


def _show(given: dict[str, int | None]) -> str:
    return ", ".join(f"{k}={v}" for k, v in given.items() if v is not None)
