"""What `profile` in the file means to a launch: the probe inside the server times its cycles."""

from __future__ import annotations

from sweep.agent.wire import Probe
from sweep.model.experiment import Experiment

ACTIVE_VARIABLE = "EAGLE3_PROFILE"
"""Phases are timed only where this is 1."""
PLUGINS_VARIABLE = "SGLANG_PLUGINS"
"""The plugins that SGLang may load, by name; empty or unset: all."""


def environment(experiment: Experiment) -> dict[str, str]:
    """Return what a server's environment holds for the probe, the same for every launch.

    It is part of the command and so of a launch's identity: with the probe is another launch than
    without it. What changes no measurement is left to the agent.
    """
    return {} if experiment.profile is None else {ACTIVE_VARIABLE: "1"}


def probe(experiment: Experiment) -> Probe | None:
    """Return what the agent does about the probe, None: nothing."""
    profile = experiment.profile
    return None if profile is None else Probe(profile.every_cycles, PLUGINS_VARIABLE)
