"""The kernels that SGLang's speculation calls on a CPU, in plain PyTorch.

Names and parameters are those that SGLang 0.5.23 calls. What no small text model needs is refused
when it is called, not when it is imported.
"""

from __future__ import annotations

from typing import Any

import torch

from sgl_kernel.attention import (
    build_draft_decode_metadata_cpu,
    decode_attention_cpu,
    extend_attention_cpu,
)
from sgl_kernel.cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__version__ = "0.0"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

for _kernel in (decode_attention_cpu, extend_attention_cpu):
    setattr(torch.ops.sgl_kernel, _kernel.__name__, _kernel)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: Any, **__: Any) -> None:
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in for this CPU")

    return missing
