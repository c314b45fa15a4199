"""N-gram drafting: a tree that is given as a mask of who sees whom."""

from __future__ import annotations

import torch


def reconstruct_indices_from_tree_mask(
    tree_mask: torch.Tensor,
    verified_seq_len: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Fill positions and links of each request's tree: a token's parent is the last one it sees."""
    count = draft_token_num
    masks = tree_mask.view(-1)[: batch_size * count * count].view(batch_size, count, count)
    below = torch.ones(count, count, dtype=torch.bool).tril(-1)
    index, child, sibling, place = (
        tensor.view(batch_size, count)
        for tensor in (retrive_index, retrive_next_token, retrive_next_sibling, positions)
    )
    for row in range(batch_size):
        sees = (masks[row].bool() & below).tolist()
        parents = [max((one for one in range(count) if seen[one]), default=-1) for seen in sees]
        for token in range(count):
            index[row, token] = row * count + token
            place[row, token] = int(verified_seq_len[row]) + sum(sees[token])
            later = range(token + 1, count)
            child[row, token] = min((one for one in later if sees[one][token]), default=-1)
            alike = (one for one in later if parents[one] == parents[token])
            sibling[row, token] = min(alike, default=-1) if parents[token] >= 0 else -1
