"""Bookkeeping of cache slots and tokens: each kernel fills the tensor that it is handed.

`req_to_token` maps (request slot, position) to a slot of the cache. Requests of a batch are given
by their slots in it, with the range of positions that is meant.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch


def _ranges(
    slots: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor
) -> Iterator[tuple[int, int, int]]:
    yield from zip(slots.tolist(), starts.tolist(), ends.tolist(), strict=True)


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write cache slots, given one request after the other, into the map."""
    taken = 0
    for slot, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        part = out_cache_loc[taken : taken + end - start]
        req_to_token[slot, start:end] = part.to(req_to_token.dtype)
        taken += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Read cache slots out of the map, one request after the other."""
    taken = 0
    for slot, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        part = req_to_token[slot, start:end]
        out_cache_loc[taken : taken + end - start] = part.to(out_cache_loc.dtype)
        taken += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the slots that follow each sequence: one for each branch and step."""
    count = topk * num_steps
    for row, (slot, length) in enumerate(
        zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)
    ):
        part = req_to_token[slot, length : length + count]
        out_cache_loc[row * count : (row + 1) * count] = part.to(out_cache_loc.dtype)


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    stride: int,
) -> None:
    """Pick the last accepted token of each request; `accept_lens` counts the bonus."""
    rows = torch.arange(accept_lens.numel()) * stride
    last = rows + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.flatten()[last].to(bonus_tokens.dtype))


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """Gather the cache slots of accepted tokens; -1 in `accept_index` means none."""
    flat = accept_index.flatten()
    kept = flat[flat > -1].long()
    slots = out_cache_loc[kept]
    accept_out_cache_loc[: kept.numel()] = slots.to(accept_out_cache_loc.dtype)


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """Move cache entries in every layer's buffer, given by its address and bytes per slot. All
    sources are read before the first target is written: they may overlap."""
    for address, width in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        entries = [ctypes.string_at(address + slot * width, width) for slot in src_loc.tolist()]
        for slot, entry in zip(tgt_loc.tolist(), entries, strict=True):
            ctypes.memmove(address + slot * width, entry, width)


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shift the tokens of each request one to the left, and put its drafted token at the end, or
    where `select_index` says."""
    drafted = topk_index.flatten()
    for row, (start, length) in enumerate(
        zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)
    ):
        input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        place = start + length - 1 if select_index is None else int(select_index[row])
        input_ids[place] = drafted[row]
