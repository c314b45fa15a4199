"""A sweep with a scan: its fastest is launched again alone, once, whatever comes between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from fakes.engine import FakeEngine, FakeScan
from fakes.node import Script, Step, good
from fakes.sweeps import Crashed, SmallSweep, small_experiment

from sweep import app
from sweep.agent import wire
from sweep.model.errors import UnusableError
from sweep.model.experiment import Axes, Budget, Experiment
from sweep.model.plan import PlannedLaunch, Role
from sweep.report.progress import read_progress
from sweep.spec.plan import make_plan

ORDER = [Role.BASELINE_FIRST, Role.SCAN, Role.CONFIRM, Role.BASELINE_LAST]


class ScanSweep(SmallSweep):
    """A small sweep whose engine holds several step counts."""

    def submit(self, experiment: Experiment) -> None:
        """Plan by an engine that can scan."""
        self.experiment = experiment
        self.plan = make_plan(experiment, FakeEngine(scan=FakeScan()))
        self.change = self.database.set_plan(experiment, self.plan, {})


def experiment(**fields: Any) -> Experiment:
    """A scan of 1, 2 and 5 steps."""
    return small_experiment(axes=Axes(num_steps=(1, 2, 5), scan=True), **fields)


def make(tmp_path: Path, script: Script = good, **fields: Any) -> ScanSweep:
    """The sweep."""
    return ScanSweep(tmp_path, script, experiment(**fields))


def scan_of(sweep: SmallSweep) -> PlannedLaunch:
    """Its scan."""
    return next(launch for launch in sweep.plan.launches if launch.role is Role.SCAN)


def choosing(sweep: SmallSweep, trial: int) -> Callable[[str], str | None]:
    """Says that the configuration of the nth trial is the fastest; the scan has ended by then."""

    def fastest(launch_id: str) -> str | None:
        scan = scan_of(sweep)
        assert launch_id == scan.launch_id
        states = sweep.database.trial_states()
        assert all(states[each.trial_id][0].is_complete for each in scan.trials)
        rows = [row for row in sweep.database.attempts() if row.launch_id == launch_id]
        assert rows[-1].fetched is not None
        return scan.trials[trial].configuration_id

    return fastest


def roles(sweep: SmallSweep) -> list[Role]:
    """Of the launches in the recorded plan."""
    return [launch.role for launch in sweep.database.plan().launches]


def test_the_fastest_is_launched_alone_before_the_last_baseline(tmp_path: Path) -> None:
    """With its plain command and all its trials, in the plan from then on."""
    sweep = make(tmp_path)
    result = sweep.run(fastest=choosing(sweep, 2))
    assert (result.exit_code, result.note) == (0, None)
    assert roles(sweep) == ORDER
    launches = sweep.database.plan().launches
    assert sweep.node.started == [f"/w/small-1/{launch.launch_id}/1" for launch in launches]
    scan, alone = launches[1], launches[2]
    assert alone.server == scan.alone[scan.trials[2].configuration_id]
    assert [trial.workload.name for trial in alone.trials] == ["code", "story"]
    assert all(state.is_complete for state, _, _ in sweep.database.trial_states().values())


def test_documents_of_a_scan_tell_the_agent_what_to_expect(tmp_path: Path) -> None:
    """Each trial's requests ask for its steps, its throw-away too, and its file goes along."""
    seen: list[wire.LaunchDoc] = []

    def script(doc: wire.LaunchDoc) -> Iterable[Step]:
        seen.append(doc)
        return good(doc)

    sweep = make(tmp_path, script)
    sweep.engine = FakeEngine(scan=FakeScan())
    sweep.run(fastest=choosing(sweep, 0))
    scan, alone = seen[1], seen[2]
    assert [file.text for file in scan.files] == ["1 2 5"]
    for trial, steps in zip(scan.trials, (1, 1, 2, 2, 5, 5), strict=True):
        assert [expected.value for expected in trial.expects] == [steps]
        for request in [*trial.requests, *trial.warmup, trial.throwaway]:
            assert request.body["steps"] == steps
    assert alone.files == []
    assert all(trial.expects == [] for trial in alone.trials)
    assert "steps" not in alone.trials[0].requests[0].body


def test_nothing_is_confirmed_when_nothing_is_fastest(tmp_path: Path) -> None:
    """Such as when every trial of it failed; the rest goes on."""
    sweep = make(tmp_path)
    assert sweep.run().exit_code == 0
    assert roles(sweep) == [ORDER[0], ORDER[1], ORDER[3]]


def test_a_fault_in_finding_the_fastest_costs_no_measurement(tmp_path: Path) -> None:
    """It is told, and everything else is done."""

    def fastest(_: str) -> str | None:
        raise RuntimeError("no table")

    sweep = make(tmp_path)
    assert sweep.run(fastest=fastest).exit_code == 0
    assert Role.CONFIRM not in roles(sweep)


@pytest.mark.parametrize("after", [14, 22, 26, 30, 34])
def test_a_killed_driver_confirms_when_it_is_resumed(tmp_path: Path, after: int) -> None:
    """Wherever it was killed: in the scan, at its end, or in the confirmation."""
    sweep = make(tmp_path)
    with pytest.raises(Crashed):
        sweep.run(crash_after=after, fastest=choosing(sweep, 4))
    assert app.launches_to_run(sweep.database) > 0
    assert sweep.run(fastest=choosing(sweep, 4)).exit_code == 0
    assert roles(sweep) == ORDER
    assert sorted(sweep.node.started) == sorted(set(sweep.node.started))
    assert app.launches_to_run(sweep.database) == 0


def test_a_finished_scan_is_not_confirmed_twice(tmp_path: Path) -> None:
    """Neither by another run nor when the same file is submitted again."""
    sweep = make(tmp_path)
    sweep.run(fastest=choosing(sweep, 2))
    started = list(sweep.node.started)
    assert sweep.run(fastest=choosing(sweep, 0)).exit_code == 0
    sweep.submit(experiment())
    assert (sweep.change.kept, sweep.change.new, sweep.change.dropped) == (12, 0, 0)
    assert roles(sweep) == ORDER
    assert sweep.run(fastest=choosing(sweep, 0)).exit_code == 0
    assert sweep.node.started == started


def test_a_plan_without_the_scan_drops_what_confirmed_it(tmp_path: Path) -> None:
    """Other steps are another scan, which is confirmed for itself."""
    sweep = make(tmp_path)
    sweep.run(fastest=choosing(sweep, 2))
    sweep.submit(small_experiment(axes=Axes(num_steps=(1, 2), scan=True)))
    assert roles(sweep) == [ORDER[0], ORDER[1], ORDER[3]]
    assert sweep.run(fastest=choosing(sweep, 0)).exit_code == 0
    assert roles(sweep) == ORDER


def test_what_confirms_is_no_change_of_the_engine(tmp_path: Path) -> None:
    """Resume compares what comes of the file alone; another engine is still seen."""
    sweep = make(tmp_path)
    sweep.run(fastest=choosing(sweep, 2))
    app.require_same(sweep.database.plan(), sweep.plan)
    with pytest.raises(UnusableError):
        app.require_same(sweep.database.plan(), make_plan(experiment(), FakeEngine()))


def test_a_budget_that_is_used_up_leaves_it_not_run(tmp_path: Path) -> None:
    """It is in the plan, with the reason, and a larger budget runs it."""
    sweep = make(tmp_path, budget=Budget(launches=2))
    assert sweep.run(fastest=choosing(sweep, 2)).exit_code == 1
    assert roles(sweep) == ORDER
    assert sweep.launches() == ["done", "done", "not_run", "not_run"]
    assert sweep.reasons()[2] == "budget"
    sweep.submit(experiment(budget=Budget(launches=9)))
    assert sweep.run(fastest=choosing(sweep, 2)).exit_code == 0
    assert sweep.launches() == ["done"] * 4


def test_progress_tells_which_step_count_is_measured(tmp_path: Path) -> None:
    """Beside the workload, which is the same for all trials of a scan."""
    sweep = make(tmp_path)
    seen: dict[str | None, None] = {}

    def watch() -> str | None:
        for now in read_progress(sweep.database, sweep.clock.utc(), driver_alive=True).now:
            seen[now.trial] = None
        return None

    sweep.run(stop=watch)
    assert "2 steps, code, concurrency 1" in seen
    assert "code, concurrency 1" in seen
