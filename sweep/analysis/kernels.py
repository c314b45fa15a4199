"""What kind of work a kernel or an operator does, by its name.

Names are those of NCCL, of the custom all-reduces of SGLang and vLLM, of DeepEP, FlashInfer,
FlashAttention, FlashMLA, TensorRT-LLM, CUTLASS, cuBLAS, DeepGEMM and Marlin, of Triton's kernels in
SGLang, and of torch's own operators.
"""

from __future__ import annotations

import re
from functools import cache

COMMUNICATION, ATTENTION, EXPERTS, DENSE, OTHER, IDLE = KINDS = (
    "communication", "attention", "experts", "dense", "other", "idle",
)  # fmt: skip

_PATTERNS = {
    COMMUNICATION: (
        r"nccl|rccl|mscclpp|nvshmem|gloo|c10d::|deep_?ep|all_?reduce|all_?gather|reduce_?scatter",
        r"all_?to_?all|cross_device_reduce|multimem|symm_mem|lamport|sendrecv",
    ),
    EXPERTS: (
        r"moe|expert|group(ed)?_?gemm|GroupProblemShape|m_grouped|dynBatch|grouped_topk",
        r"topk_?(softmax|sigmoid|gating)|silu_and_mul_masked",
    ),
    ATTENTION: (
        r"fmha|attention|attn|flash::|flash_?(fwd|mla|decod)|mla_|_mla|xqa|paged_?kv|_sdpa",
        r"batch(decode|prefill)|merge_?states?|split_?kv|_fwd_(grouped_)?kernel",
    ),
    DENSE: (
        r"gemm|gemv|matmul|nvjet|cublas|cutlass|xmma|wgmma|split_?k|marlin|cijk_|scaled_mm",
        r"(aten|mkldnn)::(_?mm|bmm|addmm|addmv|mv|dot|linear|baddbmm|einsum)\b|packed_linear",
    ),
}
"""The first kind that matches counts: an all-reduce fused with something else is communication, a
GEMM of experts is the experts' work."""

_COMPILED = {kind: re.compile("|".join(p), re.IGNORECASE) for kind, p in _PATTERNS.items()}


@cache
def kind_of(name: str) -> str:
    """Return one of KINDS, but for idle, which has no name."""
    return next((kind for kind, regex in _COMPILED.items() if regex.search(name)), OTHER)
