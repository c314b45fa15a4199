"""Trees of draft tokens: laying one out, and following the target through it.

The tokens of a request that are verified have positions 0 to n - 1 in its tree; 0 is the root, the
last token that is certain. A tree is linked by first child and next sibling, -1 for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

FULL_MASK = 0
"""The mask covers what was generated before the tree too; other modes: the tree alone."""


def _parent(
    position: int, selected: Sequence[int], parents: Sequence[int], topk: int
) -> int | None:
    """Return the tree position of a token's parent; None: it was not selected.

    `selected` are indices of candidates, topk for each node that was expanded; `parents` names
    the candidate that each of those nodes was.
    """
    node = selected[position - 1] // topk
    if node == 0:
        return 0
    candidate = parents[node]
    return selected.index(candidate) + 1 if candidate in selected else None


def _ancestors(
    position: int, selected: Sequence[int], parents: Sequence[int], topk: int
) -> Iterator[int]:
    """Yield a token's own position and those above it, the root left out."""
    place: int | None = position
    while place:
        yield place
        place = _parent(place, selected, parents, topk)


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Lay out the selected candidates of each request as a tree: which token sees which, at which
    position of the sequence each stands, and the links."""
    batch, count = verified_seq_len.numel(), draft_token_num
    selected_of = selected_index.view(batch, -1).tolist()
    parents_of = parent_list.view(batch, -1).tolist() if parent_list.numel() else [[]] * batch
    mask = tree_mask.view(-1)
    index, child, sibling, place = (
        tensor.view(-1)
        for tensor in (retrive_index, retrive_next_token, retrive_next_sibling, positions)
    )
    taken = 0
    for row, length in enumerate(verified_seq_len.tolist()):
        selected, parents, first = selected_of[row], parents_of[row], row * count
        before = length if int(tree_mask_mode) == FULL_MASK else 0
        index[first : first + count] = torch.arange(first, first + count)
        for position in range(count):
            start = taken + (before + count) * position + before
            above = list(_ancestors(position, selected, parents, topk))
            mask[start : start + count] = False
            mask[[start, *(start + one for one in above)]] = True
            place[first + position] = length + len(above)
        taken += (before + count) * count
        for position in range(count - 1, 0, -1):
            parent = _parent(position, selected, parents, topk)
            if parent is not None:
                sibling[first + position] = child[first + parent]
                child[first + parent] = position


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Go down each tree as long as one of the children is what the target predicts."""
    target = target_predict.flatten().tolist()
    index, child, sibling, tokens = (
        tensor.tolist()
        for tensor in (retrive_index, retrive_next_token, retrive_next_sibling, candidates)
    )
    for row in range(len(tokens)):
        last, accepted, at = index[row][0], 0, 0
        accept_index[row, 0] = last
        while accepted < accept_index.shape[1] - 1:
            at = child[row][at]
            while at != -1 and tokens[row][at] != target[last]:
                at = sibling[row][at]
            if at == -1:
                break
            predicts[last] = target[last]
            accepted += 1
            last = index[row][at]
            accept_index[row, accepted] = last
        accept_token_num[row] = accepted
        predicts[last] = target[last]
