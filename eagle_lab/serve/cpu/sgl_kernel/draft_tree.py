"""The tree of drafted tokens: building it from the drafter's choices, and greedy verification.

A tree has D rows; row 0 is the last verified token (the root). Rows are linked as first child (`next_token`) and next
sibling (`next_sibling`), -1 = none. The trees are small (D <= 64 or so), so each request is walked in plain Python on
lists: 16 requests of 12 rows take 0.1 ms.
"""

from __future__ import annotations

import torch
from torch import Tensor

QLEN_ONLY = 1
"""TreeMaskMode: the mask covers the D x D new tokens alone (what the CPU attention takes)."""


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    _depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Fills mask [B * D * D], positions [B * D] and links [B, D] of the trees.

    selected_index [B, D - 1]: ascending indices into the drafter's candidates, topk per expanded node; parent_list
    [B, nodes]: the candidate that node i expands (node 0 expands the root). A candidate whose parent was not selected
    (equal scores) stays unattached: it sees itself and the root, and no walk reaches it.
    """
    if int(tree_mask_mode) != QLEN_ONLY:
        raise NotImplementedError(f"tree mask mode {tree_mask_mode}")
    size, batch = draft_token_num, verified_seq_len.numel()
    masks, children, siblings = [], [], []
    places: list[int] = []
    lists = zip(selected_index.tolist(), parent_list.tolist(), verified_seq_len.tolist(), strict=True)
    for selected, parents, length in lists:
        row_of = {candidate: row for row, candidate in enumerate(selected, 1)}
        sees = [[j == 0 for j in range(size)]]
        depth, child, sibling, last_child = [0], [-1] * size, [-1] * size, [-1] * size
        for row, candidate in enumerate(selected, 1):
            node = candidate // topk
            parent = 0 if node == 0 else row_of.get(parents[node], -1)
            seen = list(sees[max(parent, 0)])
            seen[row] = True
            sees.append(seen)
            depth.append(depth[parent] + 1 if parent >= 0 else 1)
            if parent < 0:
                continue
            if last_child[parent] < 0:
                child[parent] = row
            else:
                sibling[last_child[parent]] = row
            last_child[parent] = row
        masks.append(sees)
        places.extend(length + d for d in depth)
        children.append(child)
        siblings.append(sibling)
    if not batch:
        return
    tree_mask.view(-1, size, size)[:batch] = torch.tensor(masks)
    positions[: batch * size] = torch.tensor(places)
    retrive_index[:batch] = torch.arange(batch * size).view(batch, size)
    retrive_next_token[:batch] = torch.tensor(children)
    retrive_next_sibling[:batch] = torch.tensor(siblings)


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walks each tree along the target's argmax; mutates the first three.

    candidates, links [B, D]: tokens and structure. target_predict [B, D]: the target's next token after each row.
    accept_index [B, depth]: rows (of all B * D) on the accepted path, root first, -1 after it. accept_token_num [B]:
    accepted drafts, without the root. predicts [B * D]: the target's token at every row of the path (the last one is
    the bonus token).
    """
    wanted, most = target_predict.flatten().tolist(), accept_index.shape[1]
    paths, counts = [], []
    lists = (t.tolist() for t in (candidates, retrive_index, retrive_next_token, retrive_next_sibling))
    for tokens, index, child, sibling in zip(*lists, strict=True):
        row, path = 0, [index[0]]
        while len(path) < most:
            row = child[row]
            while row != -1 and tokens[row] != wanted[path[-1]]:
                row = sibling[row]
            if row == -1:
                break
            path.append(index[row])
        counts.append(len(path) - 1)
        paths.append(path + [-1] * (most - len(path)))
    if not counts:
        return
    accept_index.copy_(torch.tensor(paths))
    accept_token_num.copy_(torch.tensor(counts))
    flat = accept_index.flatten()
    visited = flat[flat >= 0].long()
    predicts[visited] = target_predict.flatten()[visited].to(predicts.dtype)
