"""What `profile` in the file means to a launch: the probe, and SGLang's own timing and profiler."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.agent.wire import HttpCall, Probe, Trace
from sweep.model.experiment import Experiment, Scalar
from sweep.probe.arming import ACTIVE_VARIABLE

PLUGINS_VARIABLE = "SGLANG_PLUGINS"
"""The plugins that SGLang may load, by name; empty or unset: all."""
TIMER_VARIABLE = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"
"""Since 0.5.7: seconds on the device by kind of forward among the metrics, which are scraped. From
0.5.11 they tell drafting, verification and extension apart, of spec V2 only; older versions do not
know the variable. On a CPU the first request ends the server (TypeError in device_timer.py of
0.5.23: an event of a CPU takes no arguments)."""


TRACED_STEPS = 10
"""A thousand kernels and more each: enough for shares, and a file of a few megabytes."""
_TRACE_LIMIT_S = 180.0
"""A rank writes its trace between two steps; eight of them on one node take their time."""
_MOST_TRACE_BYTES = 128 << 20


def environment(
    experiment: Experiment, given: Mapping[str, str | None], arguments: Mapping[str, Scalar]
) -> dict[str, str | None]:
    """Return the environment `given` by the file with what timing needs, alike for a whole arm.

    It is part of the command and so of a launch's identity: with the probe is another launch than
    without it. What changes no measurement is left to the agent.
    """
    if experiment.profile is None:
        return dict(given)
    timer = {TIMER_VARIABLE: "1"} if arguments.get("device", "cuda") == "cuda" else {}
    return {**timer, **given, ACTIVE_VARIABLE: "1"}


def probe(experiment: Experiment) -> Probe | None:
    """Return what the agent does about the probe, None: nothing."""
    profile = experiment.profile
    return None if profile is None else Probe(profile.every_cycles, PLUGINS_VARIABLE)


def trace(experiment: Experiment) -> Trace | None:
    """Return how SGLang's profiler traces a few steps, None: it is not asked.

    Both kinds of activity: without the host's, the names of steps are missing on the device, and a
    torch without CUDA leaves out the device's by itself. A window that has ended by itself must not
    be stopped again (500 since 0.5.9), nor an open one be started again (which ends 0.5.23).
    """
    if experiment.profile is None or not experiment.profile.trace:
        return None
    body = {
        "num_steps": TRACED_STEPS,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }
    return Trace(
        start=HttpCall("/start_profile", "POST", body),
        directory_at="output_dir",
        stop=HttpCall("/stop_profile", "POST"),
        suffix=".trace.json",
        limit_s=_TRACE_LIMIT_S,
        most_bytes=_MOST_TRACE_BYTES,
    )
