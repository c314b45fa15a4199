"""Which trials are traced."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.engine import FakeEngine, FakeScan
from fakes.files import SMALL, load

from sweep.model.plan import Role
from sweep.spec.plan import make_plan
from sweep.spec.tracing import traced_trials

ASKED = ("engine.kind=simulator", "sweep.num_steps=[1, 2]", "profile={trace: true, compare: true}")


def traced(*overrides: str) -> dict[str, list[tuple[str, int]]]:
    """Role and label of each launch → workload and concurrency of its traced trials."""
    experiment = load(SMALL, (*ASKED, *overrides))
    launches = make_plan(experiment, FakeEngine()).launches
    return {
        f"{launch.role.value}: {launch.label}": [
            (trial.workload.name, trial.concurrency)
            for trial in launch.trials
            if trial.trial_id in traced_trials(launch, experiment)
        ]
        for launch in launches
    }


def test_each_configuration_is_traced_once() -> None:
    """At its first trial; a launch that repeats another is not."""
    assert traced() == {
        "baseline_first: baseline": [("code", 1)],
        "main: 1 step": [("code", 1)],
        "unprofiled: 1 step (without the probe)": [],
        "main: 2 steps": [("code", 1)],
        "baseline_last: baseline (again)": [],
    }


def test_the_objectives_place_is_the_one_that_is_traced() -> None:
    """It is where people look."""
    found = traced("objective.at={workload: code, concurrency: 2}")
    assert found["main: 2 steps"] == [("code", 2)]


def test_every_step_count_of_a_scan_is_traced() -> None:
    """Its launch stands for those that it saves."""
    experiment = load(SMALL, ("sweep.num_steps=[1, 2]", "sweep.scan=true", "profile={trace: true}"))
    plan = make_plan(experiment, FakeEngine(scan=FakeScan()))
    (scan,) = (launch for launch in plan.launches if launch.role is Role.SCAN)
    steps = {trial.trial_id: trial.configuration.num_steps for trial in scan.trials}
    assert sorted(steps[name] or 0 for name in traced_trials(scan, experiment)) == [1, 2]


@pytest.mark.parametrize("profile", ["profile=~", "profile={}", "profile={trace: false}"])
def test_nothing_is_traced_unasked(profile: str) -> None:
    """The default is no trace."""
    assert not any(traced(profile).values())


def test_every_configuration_of_a_launch_is_traced() -> None:
    """Where a server hosts several."""
    experiment = load(SMALL, ASKED)
    mains = [x for x in make_plan(experiment, FakeEngine()).launches if x.role is Role.MAIN]
    both = replace(mains[0], trials=(*mains[0].trials, *mains[1].trials))
    assert traced_trials(both, experiment) == {launch.trials[0].trial_id for launch in mains}
