"""Trees against a plain model of them: nodes with a parent, accepted along the one path that the target agrees with."""

from __future__ import annotations

import random

import pytest
import torch
from sgl_kernel import draft_tree


def grow(rng: random.Random, topk: int, steps: int, size: int) -> tuple[list[int], list[int], list[int | None]]:
    """(selected candidates, parent_list, parent row of rows 1..): a random draft as SGLang's drafter numbers it.

    Candidate c belongs to node c // topk; node 0 is the root, the others are topk candidates per step, named in
    parent_list. Ancestors are selected before descendants, as descending scores do.
    """
    parents, candidates = [-1], list(range(topk))
    frontier = list(range(topk))
    for step in range(1, steps):
        chosen = frontier if step == 1 else rng.sample(frontier, topk)
        first = 1 + (step - 1) * topk
        parents += sorted(chosen)
        frontier = [(first + i) * topk + j for i in range(topk) for j in range(topk)]
        candidates += frontier
    above = {c: (None if c < topk else parents[c // topk]) for c in candidates}
    selected: set[int] = set()
    while len(selected) < size - 1:
        c = rng.choice([c for c in candidates if c not in selected and (above[c] is None or above[c] in selected)])
        selected.add(c)
    ordered = sorted(selected)
    rows: list[int | None] = []
    for c in ordered:
        up = above[c]
        rows.append(0 if up is None else ordered.index(up) + 1)
    return ordered, parents, rows


def build(batch: list[tuple[list[int], list[int]]], lengths: list[int], topk: int, size: int):
    b = len(batch)
    mask = torch.ones(b * size * size, dtype=torch.bool)
    positions = torch.zeros(b * size, dtype=torch.int64)
    index, child, sibling = torch.full((3, b, size), -1)
    draft_tree.build_tree_kernel_efficient_cpu(
        torch.tensor([p for _, p in batch]), torch.tensor([s for s, _ in batch]), torch.tensor(lengths), mask,
        positions, index, child, sibling, topk, 0, size, draft_tree.QLEN_ONLY,
    )  # fmt: skip
    return mask.view(b, size, size), positions.view(b, size), index, child, sibling


@pytest.mark.parametrize(("topk", "steps", "size"), [(1, 4, 5), (2, 3, 6), (4, 3, 12), (4, 2, 20)])
def test_trees_are_built_and_walked_like_plain_ones(topk, steps, size):
    rng = random.Random(size)
    lengths, grown = [9, 30, 4], [grow(rng, topk, steps, size) for _ in range(3)]
    mask, positions, index, child, sibling = build([(s, p) for s, p, _ in grown], lengths, topk, size)
    accepted = 0
    for _ in range(20):
        # few tokens, so that the target agrees with some draft now and then; siblings differ, as topk ensures
        tokens, wanted = torch.empty(3, size, dtype=torch.long), torch.randint(0, topk + 1, (3, size))
        for b, (_, _, up) in enumerate(grown):
            tokens[b, 0] = 0
            for row, parent in enumerate(up, 1):
                tokens[b, row] = sum(1 for r in range(1, row) if up[r - 1] == parent)
        predicts = torch.zeros(3 * size, dtype=torch.int32)
        accept = torch.full((3, steps + 1), -1, dtype=torch.int32)
        counts = torch.empty(3, dtype=torch.int32)
        draft_tree.verify_tree_greedy_cpu(predicts, accept, counts, tokens, index, child, sibling, wanted)
        for b, (_, _, up) in enumerate(grown):
            path = [0]
            while len(path) <= steps:
                on = [r for r in range(1, size) if up[r - 1] == path[-1] and tokens[b, r] == wanted[b, path[-1]]]
                if not on:
                    break
                path.append(on[0])
            rows = [b * size + r for r in path]
            assert accept[b].tolist() == rows + [-1] * (steps + 1 - len(rows))
            assert counts[b] == len(path) - 1
            assert predicts[rows].tolist() == wanted[b, path].tolist()
            others = [r for r in range(b * size, (b + 1) * size) if r not in rows]
            assert not predicts[others].any()
            accepted += len(path) - 1
    assert accepted > 0, "nothing was ever accepted: the test proves nothing"
    for b, (_, _, up) in enumerate(grown):
        for row in range(size):
            ancestors, at = {row}, row
            while at:
                at = up[at - 1]
                ancestors.add(at)
            assert set(mask[b, row].nonzero().flatten().tolist()) == ancestors
            assert positions[b, row] == lengths[b] + len(ancestors) - 1


def test_a_candidate_without_its_parent_stays_unattached():
    # candidate 9 belongs to node 2, which expands candidate 1; candidate 1 is not selected
    mask, positions, _, child, sibling = build([([0, 2, 9], [-1, 0, 1, 2, 3])], [10], 4, 4)
    assert mask[0].tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [True, False, True, False],
        [True, False, False, True],
    ]
    assert child[0].tolist() == [1, -1, -1, -1]
    assert sibling[0].tolist() == [-1, 2, -1, -1]
    assert positions[0].tolist() == [10, 11, 11, 11]


def test_other_mask_modes_are_refused():
    with pytest.raises(NotImplementedError):
        draft_tree.build_tree_kernel_efficient_cpu(*[torch.zeros(1)] * 8, 1, 1, 2, 0)
