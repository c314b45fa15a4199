"""SGLang's own counters, as its metrics spell them."""

from __future__ import annotations

from sweep.engines import engine_of
from sweep.engines.sglang.metrics import server_counters
from sweep.model.experiment import EngineSpec
from sweep.ports import ServerCounters

RANK = 'engine_type="unified",model_name="a \\"b\\" {c}",tp_rank="%d"'
METRICS = f"""\
# HELP sglang:generation_tokens_total Number of generation tokens processed.
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{{RANK % 0}}} 96.0
sglang:generation_tokens_total{{{RANK % 1}}} 4.0
sglang:spec_verify_calls_total{{{RANK % 0}}} 3.1e+01 1730000000000
sglang:spec_accept_length{{{RANK % 0}}} 3.1
sglang:forward_execution_seconds_total{{category="eagle_draft",{RANK % 0}}} 0.5
sglang:forward_execution_seconds_total{{category="target_verify",{RANK % 0}}} 2.5
sglang:forward_execution_seconds_total{{category="eagle_draft_extend",{RANK % 0}}} 0.25
sglang:forward_execution_seconds_total{{category="extend",{RANK % 0}}} 9.0
sglang:forward_execution_seconds_total{{category="target_verify",{RANK % 1}}} 2.6
sglang:torn{{
sglang:generation_tokens_total{{}} none
"""


def test_counters_are_summed_and_the_timer_is_of_one_rank() -> None:
    """Of the first one; labels may hold quotes and braces, samples times."""
    assert server_counters(METRICS) == ServerCounters(
        100.0, 31.0, {"draft": 0.5, "verify": 2.5, "extend": 0.25}
    )


def test_what_a_version_does_not_have_is_not_there() -> None:
    """Not 0; 0.5.7's timer does not tell phases apart."""
    old = 'sglang:gpu_execution_seconds_total{category="decode"} 5.0\n'
    assert server_counters(old) == ServerCounters()
    assert server_counters("") == ServerCounters()
    assert server_counters("sglang:generation_tokens_total 7\n") == ServerCounters(7.0)


def test_engines_without_counters_say_nothing() -> None:
    """llama.cpp's counts come with its answers; the simulator speaks as SGLang."""
    assert engine_of(EngineSpec("llama.cpp", "m")).server_counters(METRICS) == ServerCounters()
    assert engine_of(EngineSpec("simulator", "m")).server_counters(METRICS).cycles == 31.0
