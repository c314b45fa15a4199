"""Rotary position embedding in plain PyTorch."""

from __future__ import annotations

import torch


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    """Rotate query and key in place. `cos_sin_cache` holds for each position the cosines, then
    the sines, of half the rotated width."""
    angles = cos_sin_cache[positions.flatten()].float()
    width = angles.shape[-1]
    cosine, sine = (part[:, None] for part in angles.chunk(2, -1))
    for tensor in (query, key):
        if tensor is None:
            continue
        heads = tensor.view(positions.numel(), -1, head_size)
        rotated = heads[..., :width].float()
        if is_neox:
            first, second = rotated.chunk(2, -1)
            turned = (first * cosine - second * sine, second * cosine + first * sine)
            heads[..., :width] = torch.cat(turned, -1).to(tensor.dtype)
        else:
            first, second = rotated[..., 0::2], rotated[..., 1::2]
            turned = (first * cosine - second * sine, second * cosine + first * sine)
            heads[..., :width] = torch.stack(turned, -1).flatten(-2).to(tensor.dtype)
