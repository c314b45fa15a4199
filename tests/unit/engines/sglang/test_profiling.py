"""What `profile` puts into the command of a server."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.agent.wire import Probe
from sweep.engines.sglang import SGLang
from sweep.model.experiment import (
    Axes,
    EngineSpec,
    Experiment,
    Profile,
    Prompt,
    Scalar,
    Variant,
    Workload,
)
from sweep.model.plan import Configuration

ENGINE = SGLang()
ACTIVE, TIMER = "EAGLE3_PROFILE", "SGLANG_ENABLE_METRICS_DEVICE_TIMER"


def experiment(profile: Profile | None = None, **engine: Any) -> Experiment:
    """An EAGLE-3 experiment with a variant."""
    return Experiment(
        name="e",
        engine=EngineSpec("sglang", "target", draft_model="d", algorithm="EAGLE3", **engine),
        workloads=(Workload("w", (Prompt("1", text="x"),)),),
        axes=Axes(variants=(Variant("default"), Variant("v", env={"NCCL_PROTO": "LL"}))),
        profile=profile,
    )


def test_the_profiler_is_asked_for_a_few_steps_of_decoding() -> None:
    """By what every version takes; without `trace` in the file there is no such thing."""
    assert ENGINE.document(experiment(Profile())).trace is None
    assert ENGINE.document(experiment()).trace is None
    trace = ENGINE.document(experiment(Profile(trace=True))).trace
    assert trace is not None
    assert (trace.start.path, trace.start.method, trace.start.body) == (
        "/start_profile",
        "POST",
        {"num_steps": 10, "activities": ["CPU", "GPU"], "with_stack": False,
         "record_shapes": False},
    )  # fmt: skip
    assert (trace.stop.path, trace.directory_at) == ("/stop_profile", "output_dir")


def timing(subject: Experiment, configuration: Configuration) -> dict[str, str]:
    """The variables of a configuration's server that have to do with timing."""
    server = ENGINE.server(configuration, subject)
    return {name: value for name, value in server.env.items() if name in (ACTIVE, TIMER)}


@pytest.mark.parametrize("variant", ["default", "v"])
def test_baseline_and_speculation_are_timed_alike(variant: str) -> None:
    """What timing costs, if anything, both pay; without it neither has a trace of it."""
    for configuration in (Configuration(None, variant=variant), Configuration("EAGLE3", 2)):
        assert timing(experiment(Profile()), configuration) == {ACTIVE: "1", TIMER: "1"}
        assert timing(experiment(), configuration) == {}


@pytest.mark.parametrize(
    ("device", "timed"), [("cuda", True), ("cpu", False), ("xpu", False), ("npu", False)]
)
def test_the_engines_own_timer_is_for_cuda_only(device: Scalar, timed: bool) -> None:
    """On a CPU it ends the server with the first request."""
    subject = experiment(Profile(), args={"device": device})
    assert (TIMER in timing(subject, Configuration("EAGLE3", 2))) is timed


def test_the_file_can_switch_the_engines_timer_off() -> None:
    """The probe itself goes with `profile`, whatever the environment says."""
    subject = experiment(Profile(), env={TIMER: "0", ACTIVE: "0"})
    assert timing(subject, Configuration("EAGLE3", 2)) == {ACTIVE: "1", TIMER: "0"}


def test_how_often_a_summary_is_printed_is_no_part_of_the_command() -> None:
    """A launch is not repeated for it."""
    often, seldom = experiment(Profile(1)), experiment(Profile(1000))
    configuration = Configuration("EAGLE3", 2)
    assert ENGINE.server(configuration, often) == ENGINE.server(configuration, seldom)
    assert ENGINE.document(seldom).probe == Probe(1000, "SGLANG_PLUGINS")
    assert ENGINE.document(experiment()).probe is None
