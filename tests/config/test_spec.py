"""The triples that SGLang rewrites, crashes on or mislabels never reach it."""

from __future__ import annotations

import pytest

from eagle_lab.config.errors import LabError
from eagle_lab.config.schema import Spec, SpecKind

NONE, CHAIN, TREE = SpecKind.none, SpecKind.chain, SpecKind.tree


def triple(kind: SpecKind, steps: int | None, topk: int | None, tokens: int | None) -> tuple:
    spec = Spec(kind=kind, num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    return spec.num_steps, spec.eagle_topk, spec.num_draft_tokens


@pytest.mark.parametrize(
    ("kind", "given", "complete"),
    [
        (NONE, (None, None, None), (None, None, None)),
        (CHAIN, (None, None, 5), (4, 1, 5)),
        (CHAIN, (4, None, None), (4, 1, 5)),
        (CHAIN, (4, 1, 5), (4, 1, 5)),
        (CHAIN, (1, 1, 2), (1, 1, 2)),
        (TREE, (3, 4, 12), (3, 4, 12)),
        # the bounds: steps + 1 and 1 + topk + (steps - 1) topk^2
        (TREE, (5, 2, 6), (5, 2, 6)),
        (TREE, (5, 2, 19), (5, 2, 19)),
        (TREE, (1, 2, 2), (1, 2, 2)),
        (TREE, (1, 2, 3), (1, 2, 3)),
    ],
)
def test_legal(kind: SpecKind, given: tuple, complete: tuple) -> None:
    assert triple(kind, *given) == complete


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        # SGLang would take its own defaults, which depend on the target's class
        (CHAIN, (None, None, None), r"needs spec\.num_draft_tokens"),
        (CHAIN, (None, 1, None), r"needs spec\.num_draft_tokens"),
        # silently rewritten to 4 tokens
        (CHAIN, (3, 1, 16), r"num_steps=3 with spec\.num_draft_tokens=16.*silently run 4 tokens"),
        (CHAIN, (3, 1, 3), "silently run 4 tokens"),
        (CHAIN, (3, 4, 4), r"spec\.eagle_topk=4 on a chain"),
        # plain decoding with a head loaded
        (CHAIN, (0, 1, 1), r"spec\.num_steps=0: at least 1"),
        (CHAIN, (None, None, 1), "leaves no draft step"),
        (CHAIN, (None, None, -3), r"spec\.num_draft_tokens=-3"),
        # accepted as None there, fails later
        (TREE, (3, 4, None), r"missing: spec\.num_draft_tokens"),
        (TREE, (3, None, None), r"missing: spec\.eagle_topk, spec\.num_draft_tokens"),
        (TREE, (None, 4, 8), r"missing: spec\.num_steps"),
        (TREE, (None, None, None), "states all three"),
        # torch.topk: k too large, at the first draft
        (TREE, (1, 2, 64), "needs 2 to 3 tokens"),
        (TREE, (5, 2, 20), "needs 6 to 19 tokens"),
        # the accept index has steps + 1 columns
        (TREE, (5, 2, 3), "needs 6 to 19 tokens"),
        (TREE, (5, 2, 5), "needs 6 to 19 tokens"),
        (TREE, (3, 1, 4), "on a tree is a chain"),
        (TREE, (0, 4, 4), r"spec\.num_steps=0"),
        (TREE, (3, 0, 4), r"spec\.eagle_topk=0"),
        (NONE, (3, 1, 4), r"spec=none takes no speculation numbers, got num_steps=3, eagle_topk=1, num_draft_tokens=4"),
        (NONE, (None, None, 5), "got num_draft_tokens=5"),
    ],
)
def test_illegal(kind: SpecKind, given: tuple, message: str) -> None:
    with pytest.raises(LabError, match=message):
        triple(kind, *given)
