"""Launches that hold several step counts: what shares one, what does not and why, what confirms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.engine import FakeEngine, FakeScan
from fakes.sweeps import small_experiment

from sweep.model.experiment import Axes, Experiment, NodeSpec, Profile, Variant
from sweep.model.plan import Plan, PlannedLaunch, Role, SetupLayer
from sweep.ports import EngineFacts
from sweep.spec.estimate import ExpectedLoad, estimate
from sweep.spec.plan import KnownNode, make_plan
from sweep.spec.scans import confirmation, with_confirmations

HOLDS = FakeEngine(scan=FakeScan())


def experiment(steps: tuple[int, ...] = (1, 2, 5), **axes: Any) -> Experiment:
    """Two workloads, with a scan asked for."""
    return small_experiment(axes=Axes(num_steps=steps, **{"scan": True, **axes}))


def scans(plan: Plan) -> list[PlannedLaunch]:
    """The launches that hold several step counts."""
    return [launch for launch in plan.launches if launch.role is Role.SCAN]


def test_step_counts_of_a_chain_share_a_launch() -> None:
    """Every step count × workload is a trial of it, between the two baselines."""
    plan = make_plan(experiment(), HOLDS)
    assert [launch.role for launch in plan.launches] == [
        Role.BASELINE_FIRST, Role.SCAN, Role.BASELINE_LAST,
    ]  # fmt: skip
    (scan,) = scans(plan)
    assert [(t.configuration.num_steps, t.workload.name) for t in scan.trials] == [
        (1, "code"), (1, "story"), (2, "code"), (2, "story"), (5, "code"), (5, "story"),
    ]  # fmt: skip
    assert all(trial.pinned for trial in scan.trials)
    assert scan.server.files[0].text == "1 2 5"
    assert scan.label == "1, 2, 5 steps in one launch"
    assert [note for note in plan.notes if note.startswith("3 step counts, 1 launch")]


def test_without_being_asked_each_has_a_launch_of_its_own() -> None:
    """A plain launch is what is run in the end."""
    plan = make_plan(experiment(scan=False), HOLDS)
    assert [launch.role for launch in plan.launches][1:-1] == [Role.MAIN] * 3
    assert not any(trial.pinned for launch in plan.launches for trial in launch.trials)


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (FakeEngine(), "a server of fake holds one"),
        (FakeEngine(scan=FakeScan("too old")), "too old"),
    ],
)
def test_an_engine_that_cannot_gets_a_launch_per_step_count(engine: FakeEngine, why: str) -> None:
    """The plan says why, once; identities are those of a plan that does not ask for it."""
    plan = make_plan(experiment(), engine)
    assert f"a launch per step count: {why}" in plan.notes
    plain = make_plan(experiment(scan=False), engine)
    assert plan.launches == plain.launches


def test_one_node_that_cannot_is_enough() -> None:
    """Which node it would run on must not decide what is compared."""

    class Picky(FakeScan):
        def obstacle(self, configuration: Any, experiment: Any, known: Any) -> str | None:
            return "node b is old" if known is not None else None

    nodes = (NodeSpec("a"), NodeSpec("b"))
    asked = replace(experiment(), nodes=nodes)
    known = {"b": KnownNode(engine=EngineFacts("old"))}
    plan = make_plan(asked, FakeEngine(scan=Picky()), known)
    assert not scans(plan)
    assert "a launch per step count: node b is old" in plan.notes


def test_trees_variants_and_arguments_do_not_share() -> None:
    """Only the steps may differ; a tree keeps its own launch, and one step count is no scan."""
    axes = {
        "topk": (1, 2),
        "variants": (Variant("default"), Variant("low-latency", {"X": "1"})),
    }
    plan = make_plan(experiment((1, 2), **axes), HOLDS)
    assert [(s.arm, len(s.configurations)) for s in scans(plan)] == [
        ("default", 2), ("low-latency", 2),
    ]  # fmt: skip
    mains = [launch for launch in plan.launches if launch.role is Role.MAIN]
    assert {launch.trials[0].configuration.topk for launch in mains} == {2}
    assert len(mains) == 4
    assert not scans(make_plan(experiment((3,)), HOLDS))


def test_other_steps_make_another_launch() -> None:
    """What a server holds is part of what it is."""
    one, other = (scans(make_plan(experiment(steps), HOLDS))[0] for steps in ((1, 2), (1, 3)))
    assert one.launch_id != other.launch_id
    assert one.trials[0].trial_id != other.trials[0].trial_id
    assert one.trials[0].configuration_id == other.trials[0].configuration_id


def test_a_confirmation_is_a_plain_launch_of_one_configuration() -> None:
    """The command of a launch of its own, setup included, and all its trials under new names."""
    known = {"local": KnownNode(setup=SetupLayer(env={"CUDA_HOME": "/cuda"}))}
    (scan,) = scans(make_plan(experiment(), HOLDS, known))
    chosen = scan.trials[2]
    launch = confirmation(scan, chosen.configuration_id)
    plain = make_plan(experiment(scan=False), HOLDS, known).launches[2]
    assert (launch.role, launch.confirms, launch.server) == (
        Role.CONFIRM, scan.launch_id, plain.server,
    )  # fmt: skip
    assert launch.server.env["CUDA_HOME"] == "/cuda"
    assert [trial.workload.name for trial in launch.trials] == ["code", "story"]
    assert {trial.configuration_id for trial in launch.trials} == {chosen.configuration_id}
    assert not any(trial.pinned for trial in launch.trials)
    assert not {t.trial_id for t in launch.trials} & {t.trial_id for t in scan.trials}
    assert launch.label == "2 steps (alone)"
    assert confirmation(scan, chosen.configuration_id) == launch


def test_what_will_confirm_is_counted_before_it_is_planned() -> None:
    """A load for each scan comes on top, until its confirmation is there."""
    plan = make_plan(experiment(), HOLDS)
    assert estimate(plan.launches, {"local": ExpectedLoad(100.0)}).seconds == 400.0
    (scan,) = scans(plan)
    done = [*plan.launches, confirmation(scan, scan.trials[4].configuration_id)]
    assert with_confirmations(done) == done
    assert len(with_confirmations(plan.launches)) == 4


def test_a_scan_is_not_compared_without_the_probe_and_that_is_said() -> None:
    """Its launch holds several configurations; one beside it that has a launch of its own is."""
    asked = replace(experiment(), profile=Profile(compare=True))
    plan = make_plan(asked, HOLDS)
    assert Role.UNPROFILED not in {launch.role for launch in plan.launches}
    assert any("none is measured without the probe" in note for note in plan.notes)
    trees = replace(asked, axes=replace(asked.axes, topk=(1, 2)))
    mixed = make_plan(trees, HOLDS)
    (unprofiled,) = [launch for launch in mixed.launches if launch.role is Role.UNPROFILED]
    assert unprofiled.trials[0].configuration.topk == 2
