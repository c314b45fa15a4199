"""How far a sweep is and when it will be done, from its database alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.node import Call, Finish, Hold, Step, fails, good, load, measured, phase
from fakes.sweeps import Crashed, SmallSweep, crash, small_experiment

from sweep.agent import wire
from sweep.model.experiment import Axes, NodeSpec, Variant
from sweep.model.states import LaunchState
from sweep.report.progress import Progress, eta_s, read_progress
from sweep.store.sweep_db import SweepDb

LONG = small_experiment(tuple(range(1, 19)))
"""Twenty launches with the two baselines."""


def test_time_left_without_a_completed_launch_is_unknown() -> None:
    """Nothing is known before a launch of this run has ended."""
    assert eta_s([], 9, [100.0]) is None


def test_time_left_is_the_median_times_what_waits() -> None:
    """One slow launch does not stretch the forecast, and what runs counts for its rest only."""
    assert eta_s([900.0], 9, []) == 9 * 900.0
    assert eta_s([900.0, 800.0, 5000.0], 2, [300.0]) == 2 * 900.0 + 600.0
    assert eta_s([900.0], 0, [2000.0]) == 0.0


def test_time_left_is_that_of_the_node_that_takes_longest(tmp_path: Path) -> None:
    """Nodes work at the same time; each is judged by what it did itself, once it did."""
    variants = (Variant("default"), Variant("tuned", env={"A": "1"}))
    nodes = (NodeSpec("a"), NodeSpec("b"))
    axes = Axes(num_steps=(1, 2), variants=variants)
    sweep = SmallSweep(tmp_path, experiment=small_experiment(axes=axes, nodes=nodes))
    seen: list[Progress] = []

    def watch() -> str | None:
        seen.append(look(sweep))
        return None

    assert sweep.run(stop=watch).exit_code == 0
    ended = {node: [p for p in seen if done(p, node)] for node in "ab"}
    assert all(p.eta_s is None for p in seen if not done(p, "a") and not done(p, "b"))
    both = [p for p in ended["a"] if p in ended["b"] and p.now and p.eta_s is not None]
    assert both
    for each in both:
        assert each.eta_s == max(rest_s(each, "a"), rest_s(each, "b"))


def done(progress: Progress, node: str) -> list[float]:
    """How long the launches took that a node completed."""
    return [
        line.duration_s
        for line in progress.launches
        if line.node == node and line.state is LaunchState.DONE and line.duration_s is not None
    ]


def rest_s(progress: Progress, node: str) -> float:
    """The rest of one node, by what it completed."""
    waiting = [
        line
        for line in progress.launches
        if line.node == node and line.state is LaunchState.PLANNED
    ]
    running_s = [now.running_for_s for now in progress.now if now.node == node]
    if not waiting and not running_s:
        return 0.0
    return eta_s(done(progress, node), len(waiting), running_s) or 0.0


def look(sweep: SmallSweep, *, driver_alive: bool = True) -> Progress:
    """The progress as another process sees it now."""
    database = SweepDb.open(sweep.root)
    try:
        return read_progress(database, sweep.clock.utc(), driver_alive=driver_alive)
    finally:
        database.close()


def test_time_left_on_resume_counts_only_what_this_run_did(tmp_path: Path) -> None:
    """Ten of twenty are restored, the eleventh takes 900 s: 9 x 900 s are left, not 9 x 82 s."""
    sweep = SmallSweep(tmp_path, experiment=LONG)
    sweep.run(stop=lambda: "SIGTERM" if len(sweep.node.started) == 11 else None)
    assert sweep.launches()[:10] == ["done"] * 10
    seen: list[Progress] = []

    def watch() -> str | None:
        seen.append(look(sweep))
        if len(sweep.node.started) == 12 and "running" not in sweep.launches():
            sweep.clock.now_s += 900.0 - 1.0
        return None

    sweep.node.script = lambda doc: [
        *load(doc),
        Call(lambda: sweep.clock.sleep(0.0)),
        *good(doc)[3:],
    ]
    with pytest.raises(Crashed):
        sweep.run(stop=watch, crash_after=60)
    unknown = [each for each in seen if each.eta_s is None]
    assert unknown
    assert unknown[0].finished == 10
    known = [each for each in seen if each.eta_s is not None]
    assert known
    first = known[0]
    took_s = first.launches[10].duration_s
    assert took_s is not None
    running_s = sum(min(now.running_for_s, took_s) for now in first.now)
    waiting = 9 - len(first.now)
    assert first.eta_s == pytest.approx(took_s * (waiting + len(first.now)) - running_s, abs=0.01)


def test_launches_that_are_tried_again_are_still_to_do(tmp_path: Path) -> None:
    """On resume a launch that failed in the run before counts as waiting until it is tried."""
    sweep = SmallSweep(tmp_path, fails(patterns=["oom"]))
    sweep.run()
    assert look(sweep, driver_alive=False).finished == 4
    sweep.node.script = good
    seen: list[Progress] = []
    sweep.run(stop=lambda: seen.append(look(sweep)))
    assert seen[0].finished == 0
    assert seen[-1].finished == 4
    assert sorted(each.finished for each in seen) == [each.finished for each in seen]


def test_waiting_for_the_gpus_is_not_a_launchs_own_time(tmp_path: Path) -> None:
    """A night behind someone else's sweep says nothing of how long the rest takes."""
    sweep = SmallSweep(tmp_path)

    def wait() -> None:
        sweep.clock.now_s += 600.0

    def script(doc: wire.LaunchDoc) -> list[Step]:
        if len(sweep.node.started) > 1:
            return [phase("claim"), Call(wait), Call(crash), Hold()]
        waited = Finish(fields={"phases_s": {"claim": 600.0, "load": 1.0}})
        return [phase("claim"), Call(wait), *good(doc)[:-1], waited]

    sweep.node.script = script
    with pytest.raises(Crashed):
        sweep.run()
    seen = look(sweep)
    took_s = seen.launches[0].duration_s
    assert took_s is not None
    assert took_s < 60.0
    assert [now.running_for_s for now in seen.now] == [0.0]
    planned = sum(line.state is LaunchState.PLANNED for line in seen.launches)
    assert seen.eta_s == pytest.approx(took_s * (planned + 1))


def test_what_runs_is_told(tmp_path: Path) -> None:
    """Launch, trial, phase and windows of the attempt that runs, with the time in the phase."""
    sweep = SmallSweep(tmp_path)

    def script(doc: wire.LaunchDoc) -> list[Step]:
        first, second = doc.trials
        begun = [*load(doc), *measured(first), *measured(second)[:-1]]
        flushes: list[Step] = [phase("flush", second.trial_id)] * 2
        return [*begun, *flushes, Call(crash), Hold()]

    sweep.node.script = script
    with pytest.raises(Crashed):
        sweep.run()
    sweep.clock.now_s += 30.0
    now = look(sweep).now[0]
    assert (now.launch_id, now.attempt) == (sweep.plan.launches[0].launch_id, 1)
    assert (now.phase, now.trial, now.windows) == ("flush", "story, concurrency 1", 1)
    assert now.max_windows == 2
    assert now.phase_for_s == pytest.approx(30.0, abs=1.0)


def test_a_dead_driver_is_said_to_be_dead_since_its_last_record(tmp_path: Path) -> None:
    """Without an exit code and without a process, a run died, at the earliest then."""
    sweep = SmallSweep(tmp_path)
    with pytest.raises(Crashed):
        sweep.run(crash_after=10)
    at = sweep.clock.utc()
    sweep.clock.now_s += 1000.0
    progress = look(sweep, driver_alive=False)
    assert progress.driver.startswith("dead since 2026-01-02T03:04:0")
    assert progress.driver <= f"dead since {at} or soon after (pid 1 on here)"
    assert progress.stage is None
    assert progress.launches[0].state is LaunchState.RUNNING


def test_an_ended_driver_tells_its_code_and_note(tmp_path: Path) -> None:
    """How the last run ended, and why early."""
    sweep = SmallSweep(tmp_path, fails(patterns=["oom"]))
    sweep.run()
    progress = look(sweep, driver_alive=False)
    assert "exit code 1" in progress.driver
    assert progress.note is not None
    assert "the baseline failed" in progress.note
    assert progress.launches[0].trials == {"failed": 2}


def test_a_sweep_that_never_ran(tmp_path: Path) -> None:
    """A plan without a run is no error."""
    progress = look(SmallSweep(tmp_path), driver_alive=False)
    assert (progress.driver, progress.now, progress.finished) == ("never started", (), 0)


def test_why_trials_failed_is_known_without_asking_the_report(tmp_path: Path) -> None:
    """Each class once, with the message of its first trial; the launch itself went well."""
    sweep = SmallSweep(tmp_path)

    def script(doc: wire.LaunchDoc) -> list[Step]:
        empty = [step for trial in doc.trials for step in measured(trial, output_tokens=0)]
        return [*load(doc), *empty, Finish()]

    sweep.node.script = script
    sweep.run()
    line = look(sweep).launches[0]
    assert (line.state, line.failure) == (LaunchState.DONE, None)
    assert line.trial_failures == {"short_output": "no request generated a token"}
