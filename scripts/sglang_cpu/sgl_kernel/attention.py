"""Attention over a cache whose slots are given by `req_to_token`, one request at a time."""

from __future__ import annotations

from typing import Any

import torch


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """Attention of one request; tensors are (tokens, heads, width), `mask` is (queries, keys)."""
    group = query.shape[1] // keys.shape[1]
    q, k, v = (tensor.transpose(0, 1).float() for tensor in (query, keys, values))
    if group > 1:
        k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return out.transpose(0, 1)


def decode_attention_cpu(
    query: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: Any,
    v_scale: Any,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor,
    loc: torch.Tensor,
    attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    *_: Any,
) -> None:
    """Put the new keys and values into the cache, and attend with one query per request."""
    if key is not None:
        slots = loc.long()
        k_buffer[slots] = key.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[slots] = value.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    rows = zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)
    for row, (slot, length) in enumerate(rows):
        seen = req_to_token[slot, :length].long()
        one = _attend(query[row : row + 1], k_buffer[seen], v_buffer[seen], None, scale)
        output[row : row + 1] = one.to(output.dtype)


def extend_attention_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: Any,
    v_scale: Any,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int,
    scale: float,
    logit_cap: float,
    is_cross_attention: Any,
    sliding_window: Any,
    encoder_lens: Any,
    sinks: Any,
    tree_mask: torch.Tensor | None,
    causal: bool,
) -> None:
    """Attend with the new tokens of each request: a prompt, or a tree that is verified."""
    given = (req_pool_indices, seq_lens, extend_seq_lens, extend_start_loc)
    for row, (slot, length, new, start) in enumerate(
        zip(*(tensor.tolist() for tensor in given), strict=True)
    ):
        if new == 0:
            continue
        seen = req_to_token[slot, :length].long()
        mask = torch.ones(new, length, dtype=torch.bool)
        if tree_mask is not None:
            square = tree_mask.view(-1)[row * new * new : (row + 1) * new * new]
            mask[:, length - new :] = square.view(new, new).bool()
        elif causal:
            mask[:, length - new :] = torch.ones(new, new, dtype=torch.bool).tril()
        part = _attend(query[start : start + new], k_buffer[seen], v_buffer[seen], mask, scale)
        output[start : start + new] = part.to(output.dtype)


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """Return for each branch of each request its own row of the map: what is certain, then the
    branch's steps."""
    rows = []
    for slot, length in zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True):
        for branch in range(topk):
            row = req_to_token[slot].clone()
            own = length + branch * num_steps
            row[length : length + num_steps] = req_to_token[slot, own : own + num_steps]
            rows.append(row)
    return torch.stack(rows)
