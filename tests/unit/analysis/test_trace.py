"""Binning a trace: hand-made ones with right values, and one of the real server on a CPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sweep.analysis.kernels import kind_of
from sweep.analysis.trace import TraceError, bin_trace

RECORDED = Path(__file__).with_name("traces") / "sglang-0.5.23-cpu.trace.json.gz"


def event(kind: str, name: str, begin: float, length: float, **changes: Any) -> dict[str, Any]:
    """An event of device 0, stream 7 [µs]."""
    values = {"pid": 0, "tid": 7, "args": {"device": 0}} | changes
    return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": length, **values}


def kernel(name: str, begin: float, length: float, **changes: Any) -> dict[str, Any]:
    """A kernel."""
    return event("kernel", name, begin, length, **changes)


def shares(*events: dict[str, Any]) -> tuple[dict[str, float], str, str, int | None]:
    """What is binned [µs], with source, scope and steps."""
    found = bin_trace({"traceEvents": list(events)})
    seconds = {kind: round(1e6 * value, 6) for kind, value in found.seconds.items() if value}
    return seconds, found.source, found.scope, found.steps


def test_overlaps_and_gaps_by_hand() -> None:
    """From 0 to 100: a GEMM, an all-reduce half of which hides behind the next kernel on another
    stream, attention, a gap, and a copy. What overlaps counts once."""
    found = shares(
        kernel("nvjet_tst_128x64", 0, 20),
        kernel("ncclDevKernel_AllReduce_Sum_bf16", 20, 30, tid=13),
        kernel("fused_moe_kernel", 35, 25),
        kernel("flash_fwd_splitkv_mla_kernel", 60, 15),
        kernel("act_and_mul_kernel", 74, 6),
        event("gpu_memcpy", "Memcpy DtoD", 95, 5),
        event("cpu_op", "aten::mm", 0, 100, pid=9, tid=9),
    )
    assert found == (
        {"experts": 25, "attention": 15, "dense": 20, "other": 10, "communication": 15, "idle": 15},
        "kernels",
        "whole",
        None,
    )


def test_only_verification_counts_where_steps_are_named() -> None:
    """Two verifications of 40 and 20; a kernel that reaches out of one is cut, drafting and the
    other device are left out."""
    found = shares(
        event("gpu_user_annotation", "draft", 0, 100),
        kernel("gemm_draft", 0, 100),
        event("gpu_user_annotation", "step[VERIFY bs=1]", 100, 40),
        kernel("sm90_xmma_gemm", 100, 30),
        event("gpu_user_annotation", "step[TARGET_VERIFY bs=1]", 200, 20),
        kernel("cross_device_reduce_1stage", 190, 15),
        kernel("elementwise_kernel", 205, 10),
        kernel("gemm", 100, 40, pid=1, args={"device": 1}),
    )
    assert found == (
        {"dense": 30, "communication": 5, "other": 10, "idle": 15}, "kernels", "verify", 2,
    )  # fmt: skip


def test_a_baseline_has_decoding_steps() -> None:
    """Without speculation nothing is verified."""
    found = shares(event("gpu_user_annotation", "step[DECODE bs=1]", 10, 10), kernel("gemv", 10, 5))
    assert found == ({"dense": 5, "idle": 5}, "kernels", "decode", 1)


def test_operators_count_without_those_inside_them() -> None:
    """Where no device is traced: what a matrix product or attention calls is of its kind; the time
    in no operator is idle."""

    def op(name: str, begin: float, length: float) -> dict[str, Any]:
        return event("cpu_op", name, begin, length, pid=1, tid=1)

    found = shares(
        event("user_annotation", "step[VERIFY bs=1]", 0, 100, pid=1, tid=1),
        op("aten::linear", 0, 40), op("aten::t", 2, 5), op("aten::mm", 10, 28),
        op("aten::scaled_dot_product_attention", 40, 30), op("aten::bmm", 45, 20),
        op("aten::_to_copy", 70, 10), op("aten::copy_", 72, 5),
        op("aten::mm", 100, 50),
        event("cpu_op", "aten::add", 0, 5, pid=1, tid=2),
    )  # fmt: skip
    assert found == (
        {"dense": 40, "attention": 30, "other": 10, "idle": 20}, "operators", "verify", 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ({"traceEvents": []}, "neither kernels nor operators"),
        ({}, "neither kernels nor operators"),
        ({"traceEvents": [kernel("gemm", 5, 0)]}, "its steps take no time"),
    ],
)
def test_a_trace_without_work_is_none(trace: dict[str, Any], reason: str) -> None:
    """A window in which nothing ran says nothing, rather than 100 % idle."""
    with pytest.raises(TraceError, match=reason):
        bin_trace(trace)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "communication"),
        ("void sglang::cross_device_reduce_2stage<__nv_bfloat16, 8>(...)", "communication"),
        ("flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport",
         "communication"),
        ("void deep_ep::internode_ll::dispatch<true>(...)", "communication"),
        ("fused_moe_kernel", "experts"),
        ("void cutlass::device_kernel<at_cuda_detail::GroupProblemShape<...>>", "experts"),
        ("moe_align_block_size_kernel", "experts"),
        ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128_dynBatch_sm100f", "experts"),
        ("void flash::flash_fwd_splitkv_kernel<...>", "attention"),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<...>", "attention"),
        ("cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<...>>>", "attention"),
        ("_fwd_grouped_kernel_stage1", "attention"),
        ("fmhaSm100fKernel_QkvBfloat16OBfloat16H192", "attention"),
        ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(...)", "other"),
        ("void flashinfer::activation::act_and_mul_kernel<...>", "other"),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<...>", "dense"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "dense"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>", "dense"),
        ("void marlin::Marlin<...>", "dense"),
        ("void at::native::vectorized_elementwise_kernel<4, ...>", "other"),
        ("Memcpy DtoD (Device -> Device)", "other"),
        ("aten::addmm", "dense"),
        ("aten::addmm_out_of_nothing", "other"),
    ],
)  # fmt: skip
def test_kernels_are_known_by_their_names(name: str, kind: str) -> None:
    """Names as profilers print them, C++ namespaces and templates included."""
    assert kind_of(name) == kind


def test_a_trace_of_the_real_server() -> None:
    """SGLang 0.5.23 on a CPU, two cycles of EAGLE-3 with three steps, cut out of a longer trace."""
    with gzip.open(RECORDED, "rt") as stream:
        found = bin_trace(json.load(stream))
    assert (found.source, found.scope, found.steps) == ("operators", "verify", 2)
    # By hand from the file: 16.886 + 18.796 ms of verification.
    assert sum(found.seconds.values()) == pytest.approx(0.035682, abs=2e-6)
    assert found.seconds["communication"] == found.seconds["experts"] == 0.0
    assert found.share("dense") > found.share("attention") > 0.04
    assert 0.2 < found.share("idle") < 0.5
