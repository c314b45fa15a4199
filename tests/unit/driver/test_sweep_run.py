"""One run of a sweep over a fake node: order, retries, stops, crashes and what is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from fakes.inline_lanes import InlineLanes
from fakes.node import Call, Die, Finish, Hold, Step, fails, good, load, measured, phase
from fakes.sweeps import Crashed, SmallSweep, crash, small_experiment

from sweep.agent import wire
from sweep.driver.lane import STOP_PATIENCE_S
from sweep.driver.lanes import LaneLost
from sweep.model.experiment import Axes, Budget, Variant
from sweep.model.plan import Role
from sweep.model.states import LaunchState

Script = Callable[[wire.LaunchDoc], Iterable[Step]]


def by_label(scripts: dict[str, Script]) -> Script:
    """Scripts for launches by the start of their label; the others do all they are asked."""

    def script(doc: wire.LaunchDoc) -> Iterable[Step]:
        for start, chosen in scripts.items():
            if doc.label.startswith(start):
                return chosen(doc)
        return good(doc)

    return script


def first_attempts(scripts: Script, count: int = 1) -> Script:
    """A script for the first attempts of each launch; later ones do all they are asked."""
    return lambda doc: scripts(doc) if doc.attempt <= count else good(doc)


def dies_after_first_trial(doc: wire.LaunchDoc) -> list[Step]:
    """The agent is killed when its first trial is complete."""
    return [*load(doc), *measured(doc.trials[0]), Die()]


def test_everything_runs_in_plan_order(tmp_path: Path) -> None:
    """Launches run one after another as planned, and every trial is ok."""
    sweep = SmallSweep(tmp_path)
    result = sweep.run()
    assert (result.exit_code, result.note) == (0, None)
    assert sweep.node.started == sweep.directories()
    assert sweep.launches() == ["done"] * 4
    assert sweep.trials() == ["ok"] * 8
    assert [launch.role for launch in sweep.plan.launches] == [
        Role.BASELINE_FIRST,
        Role.MAIN,
        Role.MAIN,
        Role.BASELINE_LAST,
    ]


def test_a_finished_sweep_runs_nothing(tmp_path: Path) -> None:
    """A second run of a complete sweep starts no launch."""
    sweep = SmallSweep(tmp_path)
    sweep.run()
    started = list(sweep.node.started)
    assert sweep.run().exit_code == 0
    assert sweep.node.started == started


def test_records_are_in_the_database_as_the_agent_wrote_them(tmp_path: Path) -> None:
    """Every line of both files is recorded once, byte for byte, and the files are fetched."""
    sweep = SmallSweep(tmp_path, lambda doc: list(good(doc)))
    sweep.run()
    for (launch, attempt, name), lines in sweep.lines().items():
        fetched = tmp_path / "launches" / launch / str(attempt) / name
        assert fetched.read_bytes() == "".join(f"{line}\n" for line in lines).encode()
    assert not sweep.node.exists("/w/small-1/" + sweep.plan.launches[0].launch_id)


def test_only_new_trials_run_when_the_file_gains_some(tmp_path: Path) -> None:
    """A plan with one more configuration starts one more launch."""
    sweep = SmallSweep(tmp_path)
    sweep.run()
    sweep.submit(small_experiment((1, 2, 3)))
    assert (sweep.change.kept, sweep.change.new, sweep.change.dropped) == (8, 2, 0)
    before = len(sweep.node.started)
    assert sweep.run().exit_code == 0
    assert len(sweep.node.started) == before + 1


def test_only_missing_trials_of_a_launch_are_run_again(tmp_path: Path) -> None:
    """After its agent died, a launch's next attempt runs the trials that had not ended ok."""
    sweep = SmallSweep(tmp_path, by_label({"1 step": first_attempts(dies_after_first_trial)}))
    result = sweep.run()
    launch = sweep.plan.launches[1]
    rows = [row for row in sweep.database.attempts() if row.launch_id == launch.launch_id]
    assert [row.state for row in rows] == [LaunchState.INTERRUPTED, LaunchState.DONE]
    assert rows[0].failure is not None
    assert rows[0].failure.failure_class == "agent_lost"
    assert rows[0].trial_ids == tuple(trial.trial_id for trial in launch.trials)
    assert rows[1].trial_ids == (launch.trials[1].trial_id,)
    states = sweep.database.trial_states()
    assert [states[trial.trial_id][2] for trial in launch.trials] == [1, 2]
    assert result.exit_code == 0


def test_an_interrupted_launch_is_retried_twice_and_no_more(tmp_path: Path) -> None:
    """An agent that always dies is started three times in one run; the rest goes on."""
    dies = by_label({"1 step": lambda doc: [*load(doc), Die()]})
    sweep = SmallSweep(tmp_path, dies)
    result = sweep.run()
    launch = sweep.plan.launches[1].launch_id
    assert sum(launch in directory for directory in sweep.node.started) == 3
    assert sweep.launches() == ["done", "interrupted", "done", "done"]
    assert sweep.trials() == ["ok"] * 2 + ["interrupted"] * 2 + ["ok"] * 4
    assert result.exit_code == 1


def test_a_launch_whose_trials_are_all_ok_is_not_started_again(tmp_path: Path) -> None:
    """An agent that dies after its last trial costs no second load."""

    def dies_at_the_end(doc: wire.LaunchDoc) -> list[Step]:
        return [*list(good(doc))[:-1], Die()]

    sweep = SmallSweep(tmp_path, by_label({"1 step": dies_at_the_end}))
    assert sweep.run().exit_code == 0
    assert sweep.node.started == sweep.directories()
    assert sweep.trials() == ["ok"] * 8


def test_a_failed_launch_is_not_retried_in_its_run_but_on_resume(tmp_path: Path) -> None:
    """A launch that fails is started once per run."""
    broken = first_attempts(fails(patterns=["oom"]))
    sweep = SmallSweep(tmp_path, by_label({"1 step": broken}))
    assert sweep.run().exit_code == 1
    assert sweep.node.started == sweep.directories()
    assert sweep.reasons() == [None, "oom", None, None]
    assert sweep.run().exit_code == 0
    assert len(sweep.node.started) == 5
    assert sweep.launches() == ["done"] * 4


def test_a_failed_trial_is_not_tried_again_by_the_retry_of_its_launch(tmp_path: Path) -> None:
    """When an agent dies after a trial failed, the next attempt leaves that trial out."""

    def fails_then_dies(doc: wire.LaunchDoc) -> list[Step]:
        bad = measured(doc.trials[0], status=500, error="HTTP 500", output_tokens=None)
        return [*load(doc), *bad, Die()]

    sweep = SmallSweep(tmp_path, by_label({"1 step": first_attempts(fails_then_dies)}))
    assert sweep.run().exit_code == 1
    rows = [row for row in sweep.database.attempts() if row.attempt == 2]
    assert [row.trial_ids for row in rows] == [(sweep.plan.launches[1].trials[1].trial_id,)]
    assert sweep.trials() == ["ok", "ok", "failed", "ok", "ok", "ok", "ok", "ok"]


def test_a_failed_baseline_stops_the_sweep_with_a_reason(tmp_path: Path) -> None:
    """Without its first baseline nothing can be compared: the rest is not run."""
    sweep = SmallSweep(tmp_path, by_label({"baseline": fails(patterns=["oom"])}))
    result = sweep.run()
    assert result.exit_code == 1
    assert result.note is not None
    assert "baseline" in result.note
    assert "oom" in result.note
    assert len(sweep.node.started) == 1
    assert sweep.launches() == ["failed", "not_run", "not_run", "not_run"]
    assert sweep.reasons()[1:] == ["baseline_failed"] * 3
    assert sweep.trials() == ["failed"] * 2 + ["not_run"] * 6


def test_a_baseline_that_fails_later_stops_its_arm_alone(tmp_path: Path) -> None:
    """Arms have baselines of their own: what another one gave, and is going to give, stands."""
    variants = tuple(Variant(name, env={"A": name}) for name in ("broken", "fine"))
    axes = Axes(num_steps=(1, 2), variants=(Variant("default"), *variants))
    broken = by_label({"baseline, broken": fails(patterns=["oom"])})
    sweep = SmallSweep(tmp_path, broken, experiment=small_experiment(axes=axes))
    result = sweep.run()
    assert result.exit_code == 1
    assert "the baseline of arm broken failed (oom" in str(result.note)
    assert sweep.launches() == ["done"] * 4 + ["failed"] + ["not_run"] * 3 + ["done"] * 4
    assert sweep.reasons()[5:8] == ["baseline_failed"] * 3
    sweep.node.script = good
    assert sweep.run().exit_code == 0
    assert sweep.launches() == ["done"] * 12


def test_a_baseline_that_serves_errors_only_is_a_failed_baseline(tmp_path: Path) -> None:
    """A server that starts and answers nothing but errors is no baseline either."""

    def errors(doc: wire.LaunchDoc) -> list[Step]:
        trials = [measured(trial, "errors", status=500, error="HTTP 500") for trial in doc.trials]
        return [*load(doc), *(step for steps in trials for step in steps), Finish()]

    sweep = SmallSweep(tmp_path, by_label({"baseline": errors}))
    result = sweep.run()
    assert sweep.launches() == ["done", "not_run", "not_run", "not_run"]
    assert result.note is not None
    assert "request_errors" in result.note


def test_keep_going_tries_each_launch_once(tmp_path: Path) -> None:
    """With --keep-going a sweep in which everything fails starts each launch once, none twice."""
    sweep = SmallSweep(tmp_path, fails(patterns=["oom"]), experiment=small_experiment((1, 2, 3, 4)))
    result = sweep.run(keep_going=True)
    assert sweep.node.started == sweep.directories()
    assert sweep.launches() == ["failed"] * 6
    assert result.exit_code == 1


def test_three_launches_that_fail_alike_stop_the_sweep(tmp_path: Path) -> None:
    """The fourth launch is not started after three in a row failed with one class."""
    broken = {f"{n} step": fails(patterns=["oom"]) for n in (1, 2, 3)}
    sweep = SmallSweep(tmp_path, by_label(broken), experiment=small_experiment((1, 2, 3, 4)))
    result = sweep.run()
    assert sweep.launches() == ["done", "failed", "failed", "failed", "not_run", "not_run"]
    assert result.note is not None
    assert "3 launches in a row failed alike (oom" in result.note


def test_failures_of_different_classes_do_not_stop_the_sweep(tmp_path: Path) -> None:
    """Three failures in a row with two classes are not three alike."""
    broken: dict[str, Script] = {
        "1 step": fails(patterns=["oom"]),
        "2 step": fails("load_timeout"),
        "3 step": fails(patterns=["oom"]),
    }
    sweep = SmallSweep(tmp_path, by_label(broken), experiment=small_experiment((1, 2, 3, 4)))
    sweep.run()
    assert sweep.launches() == ["done", "failed", "failed", "failed", "done", "done"]


def test_a_dirty_node_ends_the_run(tmp_path: Path) -> None:
    """When something is left on the node, later launches are not run, and not failed."""
    sweep = SmallSweep(tmp_path)
    sweep.node.left = ["pid 4711 (python) is still there"]
    result = sweep.run()
    assert result.exit_code == 1
    assert result.note is not None
    assert "pid 4711" in result.note
    assert sweep.launches() == ["done", "not_run", "not_run", "not_run"]
    assert sweep.reasons()[1:] == ["node_dirty"] * 3


def test_gpus_that_stay_taken_pause_the_lane(tmp_path: Path) -> None:
    """A claim that cannot be had ends the run, with --keep-going too, and names the holder."""
    taken = by_label({"1 step": fails("claim_timeout", "claim", detail="held by bob")})
    sweep = SmallSweep(tmp_path, taken)
    result = sweep.run(keep_going=True)
    assert sweep.launches() == ["done", "failed", "not_run", "not_run"]
    assert sweep.reasons()[1] == "claim_timeout"
    assert result.note is not None
    assert "held by bob" in result.note


def test_the_budget_of_launches_counts_over_runs(tmp_path: Path) -> None:
    """Two launches of budget are two, however often the sweep is resumed."""
    sweep = SmallSweep(tmp_path, experiment=small_experiment(budget=Budget(launches=2)))
    assert sweep.run().exit_code == 1
    result = sweep.run()
    assert (result.exit_code, result.note) == (1, "the budget of 2 launches is used up")
    assert len(sweep.node.started) == 2
    assert sweep.reasons() == [None, None, "budget", "budget"]


def test_the_budget_of_hours_counts_over_runs(tmp_path: Path) -> None:
    """Hours that an earlier run took, a killed one too, are used up."""
    sweep = SmallSweep(tmp_path, experiment=small_experiment(budget=Budget(hours=1.0)))

    def later() -> str | None:
        sweep.clock.now_s += 120.0
        return None

    with pytest.raises(Crashed):
        sweep.run(stop=later, crash_after=12)
    assert sweep.clock.now_s < 1000.0 + 3600.0
    assert sweep.run(stop=later).note == "the budget of 1 hours is used up"
    used_s = sweep.clock.now_s - 1000.0
    assert 3600.0 <= used_s < 2 * 3600.0
    assert sweep.launches().count("not_run") > 0


def test_a_stop_request_stops_the_launch_that_runs(tmp_path: Path) -> None:
    """SIGTERM: the server is stopped through its agent, states say so, and the code is 130."""
    sweep = SmallSweep(tmp_path, by_label({"1 step": lambda doc: [*load(doc), Hold()]}))

    def stop() -> str | None:
        return "SIGTERM" if len(sweep.node.started) == 2 else None

    result = sweep.run(stop=stop)
    assert result.exit_code == 130
    assert result.note == "the sweep was stopped (SIGTERM)"
    assert sweep.node.running() == []
    assert sweep.launches() == ["done", "interrupted", "not_run", "not_run"]
    assert sweep.trials() == ["ok"] * 2 + ["interrupted"] * 2 + ["not_run"] * 4
    assert sweep.reasons()[2:] == ["stopped"] * 2


def test_a_stopped_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    """After a stop, resume runs what was interrupted and what was not run, and nothing else."""
    sweep = SmallSweep(tmp_path)
    sweep.run(stop=lambda: "SIGINT" if len(sweep.node.started) == 2 else None)
    assert sweep.run().exit_code == 0
    assert sweep.trials() == ["ok"] * 8
    assert len(sweep.node.started) == 5


def test_a_stop_before_the_first_launch_starts_nothing(tmp_path: Path) -> None:
    """A signal that came while the lanes were made ends the run at once."""
    sweep = SmallSweep(tmp_path)
    assert sweep.run(stop=lambda: "SIGTERM").exit_code == 130
    assert sweep.node.started == []
    assert sweep.launches() == ["not_run"] * 4


def test_a_stop_on_resume_stops_what_a_dead_driver_left(tmp_path: Path) -> None:
    """An attempt that still runs is stopped, and never started anew, when a stop comes first."""
    sweep = SmallSweep(tmp_path, lambda doc: [*load(doc), Hold()])
    with pytest.raises(Crashed):
        sweep.run(crash_after=3)
    assert sweep.node.running() == sweep.directories()[:1]
    assert sweep.run(stop=lambda: "cancel").exit_code == 130
    assert sweep.node.running() == []
    assert sweep.node.started == sweep.directories()[:1]
    assert sweep.launches() == ["interrupted", "not_run", "not_run", "not_run"]


@pytest.mark.parametrize("events", range(0, 40, 3))
def test_a_crash_of_the_driver_costs_no_launch_and_no_line(tmp_path: Path, events: int) -> None:
    """Killed after any event, the driver goes on with the same attempt, server and lines."""
    undisturbed = SmallSweep(_made(tmp_path / "a"))
    undisturbed.run()
    sweep = SmallSweep(_made(tmp_path / "b"))
    with pytest.raises(Crashed):
        sweep.run(crash_after=events)
    before, nonces = sweep.lines(), [row.nonce for row in sweep.database.attempts()]
    assert sweep.run().exit_code == 0
    after = sweep.lines()
    for key, lines in before.items():
        assert after[key][: len(lines)] == lines
    assert [row.nonce for row in sweep.database.attempts()][: len(nonces)] == nonces
    assert sweep.node.started == sweep.directories()
    assert sweep.trials() == undisturbed.trials()
    assert [len(lines) for lines in after.values()] == [
        len(lines) for lines in undisturbed.lines().values()
    ]


def test_an_open_attempt_comes_first_and_is_read_from_its_offsets(tmp_path: Path) -> None:
    """Resume attaches to what runs before anything else, and asks only for what is new."""
    sweep = SmallSweep(tmp_path)
    with pytest.raises(Crashed):
        sweep.run(crash_after=20)
    (row,) = (row for row in sweep.database.attempts() if row.state is LaunchState.RUNNING)
    offsets = sweep.database.offsets(row.launch_id, row.attempt)
    assert offsets[wire.EVENTS_FILE] > 0
    sweep.node.reads.clear()
    sweep.tasks.clear()
    sweep.run()
    first = sweep.tasks[0]
    assert (first.launch_id, first.attempt) == (row.launch_id, row.attempt)
    assert (first.directory, dict(first.offsets)) == (row.directory, offsets)
    read = [offset for path, offset in sweep.node.reads if path.startswith(row.directory)]
    assert min(o for o in read if o) == min(offsets.values())


def test_an_agent_that_died_with_its_driver_is_one_interrupted_attempt(tmp_path: Path) -> None:
    """When driver and agent are both gone, what was ok is kept and the rest is run again."""
    sweep = SmallSweep(tmp_path, lambda doc: [*list(good(doc))[:-1], Hold(), Finish()])
    with pytest.raises(Crashed):
        sweep.run(crash_after=12)
    sweep.node.kill_agents()
    sweep.node.script = good
    assert sweep.run().exit_code == 0
    rows = sweep.database.attempts()
    assert [row.state for row in rows[:2]] == [LaunchState.INTERRUPTED, LaunchState.DONE]
    assert (rows[1].launch_id, rows[1].attempt) == (rows[0].launch_id, 2)


def test_an_intent_without_a_start_is_started(tmp_path: Path) -> None:
    """A driver that dies between the intent and the start leaves an attempt that resume starts."""
    sweep = SmallSweep(tmp_path)

    class DiesAtStart(InlineLanes):
        def start(self, node: str, task: Any) -> None:
            raise Crashed

    with pytest.raises(Crashed):
        sweep.run(wrap=lambda _: DiesAtStart(sweep.factories, sweep.clock))
    assert sweep.launches()[0] == "running"
    assert sweep.node.files == {}
    assert sweep.run().exit_code == 0
    assert sweep.node.started == sweep.directories()


def test_a_node_that_cannot_be_reached_leaves_the_attempt_open(tmp_path: Path) -> None:
    """What runs there is not known: resume attaches to it instead of starting another."""
    sweep = SmallSweep(tmp_path, by_label({"1 step": lambda doc: [*load(doc), Hold()]}))

    def breaks() -> str | None:
        if len(sweep.node.started) == 2:
            sweep.node.broken = {"read"}
        return None

    result = sweep.run(stop=breaks)
    assert result.exit_code == 1
    assert result.note is not None
    assert "read failed" in result.note
    assert sweep.launches() == ["done", "running", "not_run", "not_run"]
    sweep.node.broken = set()
    directory = sweep.directories()[1]
    sweep.node.agents[directory].steps = [*measured_all(sweep, 1), Finish()]
    assert sweep.run().exit_code == 0
    assert sweep.node.started == sweep.directories()


def test_a_silent_node_is_shown_until_it_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the stage that `status` shows and in the log, with the time since when; that it answers
    again is said there too. Nothing is lost."""
    silence: list[float] = []

    def fall_silent() -> None:
        sweep.node.silent = True
        silence.append(sweep.clock.now_s)
        sweep.clock.on_sleep.append(look)

    def look() -> None:
        stages.append(sweep.database.runs()[-1].stage)
        sweep.node.silent = sweep.node.silent and sweep.clock.now_s < silence[0] + 600

    stages: list[str] = []
    broken = by_label({"1 step": lambda doc: [*load(doc), Call(fall_silent), *good(doc)[3:]]})
    sweep = SmallSweep(tmp_path, broken)
    assert sweep.run().exit_code == 0
    since = "2026-01-02T03:04:06.800Z"
    shown = f"running; local does not answer since {since}, trying again"
    again = "running; local answers again since 2026-01-02T03:14:06.800Z"
    assert [stage for stage, _ in groupby(stages)] == ["starting", shown, again]
    assert capsys.readouterr().out.splitlines() == [
        f"{since} local does not answer, trying again: fake: no connection",
        "2026-01-02T03:14:06.800Z local answers again",
    ]
    assert sweep.node.started == sweep.directories()


def test_a_stop_while_the_node_is_silent_leaves_the_attempt_open(tmp_path: Path) -> None:
    """The run ends in minutes, says so meanwhile and at its end; `cancel` or `resume` attaches to
    the same attempt."""
    sweep = SmallSweep(tmp_path, by_label({"1 step": lambda doc: [*load(doc), Hold()]}))
    asked: list[float] = []
    stages: set[str | None] = set()
    sweep.clock.on_sleep.append(lambda: stages.add(sweep.database.runs()[-1].stage))

    def stop() -> str | None:
        if len(sweep.node.started) < 2:
            return None
        sweep.node.silent = True
        asked.append(sweep.clock.now_s)
        return "SIGTERM"

    result = sweep.run(stop=stop)
    assert result.exit_code == 130
    assert "did not answer for 180 s after the stop" in str(result.note)
    assert any(str(stage).endswith("trying again for at most 180 s") for stage in stages), stages
    assert sweep.clock.now_s - asked[0] < STOP_PATIENCE_S + 10
    assert sweep.launches() == ["done", "running", "not_run", "not_run"]
    sweep.node.silent = False
    assert sweep.run(stop=lambda: "cancel").exit_code == 130
    assert sweep.node.running() == []
    assert sweep.launches() == ["done", "interrupted", "not_run", "not_run"]
    assert sweep.node.started == sweep.directories()[:2]


def measured_all(sweep: SmallSweep, position: int) -> list[Step]:
    """The steps of all trials of a launch that was started."""
    doc = sweep.node.agents[sweep.directories()[position]].doc
    return [step for trial in doc.trials for step in measured(trial)]


def test_a_lost_lane_attaches_again(tmp_path: Path) -> None:
    """A lane that dies and is replaced costs neither the launch nor a line."""
    sweep = SmallSweep(tmp_path)
    losing = _Losing(sweep.factories, sweep.clock, losses=2)
    assert sweep.run(wrap=lambda _: losing).exit_code == 0
    assert losing.lost == 2
    assert sweep.node.started == sweep.directories()
    assert sweep.trials() == ["ok"] * 8


def test_a_lane_that_is_always_lost_is_given_up(tmp_path: Path) -> None:
    """Six losses without a line in between end the lane and leave the attempt open."""
    sweep = SmallSweep(tmp_path)
    losing = _Losing(sweep.factories, sweep.clock, losses=1000)
    result = sweep.run(wrap=lambda _: losing)
    assert result.exit_code == 1
    assert losing.lost == 6
    assert sweep.launches() == ["running", "not_run", "not_run", "not_run"]


def test_a_lane_lost_after_a_stop_only_stops(tmp_path: Path) -> None:
    """The replacement of a lane that is lost while stopping must not start its launch."""
    sweep = SmallSweep(tmp_path)
    losing = _Losing(sweep.factories, sweep.clock, losses=2)
    asked = iter([None])
    result = sweep.run(wrap=lambda _: losing, stop=lambda: next(asked, "SIGTERM"))
    assert result.exit_code == 130
    assert sweep.node.started == []
    assert sweep.node.running() == []


class _Losing(InlineLanes):
    """Lanes that are lost right after a start, `losses` times."""

    def __init__(self, factories: Any, clock: Any, losses: int) -> None:
        super().__init__(factories, clock)
        self.losses = losses
        self.lost = 0
        self._next: list[Any] = []

    def start(self, node: str, task: Any) -> None:
        if self.lost < self.losses:
            self.lost += 1
            self._next.append((node, LaneLost("killed by the test")))
        else:
            super().start(node, task)

    def poll(self, timeout_s: float) -> Any:
        events, self._next = self._next, []
        return events or super().poll(timeout_s)


def test_a_dropped_launch_that_still_runs_is_stopped_first(tmp_path: Path) -> None:
    """A launch that the edited file no longer asks for is wound down before the next starts."""
    sweep = SmallSweep(
        tmp_path, by_label({"1 step": lambda doc: [*load(doc), Call(crash), Hold()]})
    )
    with pytest.raises(Crashed):
        sweep.run()
    dropped = sweep.plan.launches[1].launch_id
    assert sweep.node.running() == [sweep.directories()[1]]
    sweep.submit(small_experiment((2,)))
    assert (sweep.change.kept, sweep.change.dropped) == (6, 2)
    assert sweep.run().exit_code == 0
    assert sweep.node.running() == []
    assert sweep.launches() == ["done"] * 3
    (row,) = (row for row in sweep.database.attempts() if row.launch_id == dropped)
    assert row.state is LaunchState.INTERRUPTED
    assert sweep.node.stopped[0] == row.directory


def test_a_dropped_launch_on_a_node_that_is_gone_stays_open(tmp_path: Path) -> None:
    """Nothing else is started while it is not known whether the dropped launch's server runs."""
    sweep = SmallSweep(
        tmp_path, by_label({"1 step": lambda doc: [*load(doc), Call(crash), Hold()]})
    )
    with pytest.raises(Crashed):
        sweep.run()
    dropped = sweep.plan.launches[1].launch_id
    sweep.submit(small_experiment((2,)))
    sweep.node.broken = {"run"}
    assert sweep.run().exit_code == 1
    (row,) = (row for row in sweep.database.attempts() if row.launch_id == dropped)
    assert row.state is LaunchState.RUNNING
    assert "not_run" in sweep.launches()


def test_trials_that_a_running_launch_gained_are_run_after_it(tmp_path: Path) -> None:
    """A launch that is attached to runs what it was started for, then a new attempt the rest."""
    experiment = small_experiment()
    one = small_experiment(workloads=experiment.workloads[:1])
    sweep = SmallSweep(tmp_path, experiment=one)
    with pytest.raises(Crashed):
        sweep.run(crash_after=5)
    sweep.submit(experiment)
    assert sweep.run().exit_code == 0
    assert sweep.trials() == ["ok"] * 8
    first = sweep.plan.launches[0]
    rows = [row for row in sweep.database.attempts() if row.launch_id == first.launch_id]
    assert [row.trial_ids for row in rows] == [
        (first.trials[0].trial_id,),
        (first.trials[1].trial_id,),
    ]


def test_a_fetch_that_fails_costs_no_result_and_is_made_up(tmp_path: Path) -> None:
    """What was recorded stands; the next run fetches what this one could not."""
    sweep = SmallSweep(tmp_path)
    sweep.node.broken = {"fetch"}
    assert sweep.run().exit_code == 0
    assert sweep.trials() == ["ok"] * 8
    assert [row.fetched for row in sweep.database.attempts()] == [None] * 4
    sweep.node.broken = set()
    assert sweep.run().exit_code == 0
    assert all(row.fetched for row in sweep.database.attempts())
    assert len(sweep.node.started) == 4
    assert not sweep.node.exists("/w/small-1/" + sweep.plan.launches[0].launch_id)


def test_a_trial_is_judged_when_it_ends_and_again_with_the_outcome(tmp_path: Path) -> None:
    """A trial's state is there with its own end; the launch's outcome then names the cause."""

    def dies_in_trial(doc: wire.LaunchDoc) -> list[Step]:
        end = measured(doc.trials[0], "server_exit")
        outcome = Finish("server_exit", "measure", {"patterns": ["oom"]})
        return [*load(doc), *end, phase("stop"), phase("verify"), Call(crash), outcome]

    sweep = SmallSweep(tmp_path, by_label({"1 step": dies_in_trial}))
    with pytest.raises(Crashed):
        sweep.run()
    trial = sweep.plan.launches[1].trials[0].trial_id
    state, failure, attempt = sweep.database.trial_states()[trial]
    assert failure is not None
    assert (state.value, failure.failure_class, attempt) == ("partial", "server_died", 1)
    sweep.run()
    state, failure, _ = sweep.database.trial_states()[trial]
    assert failure is not None
    assert (state.value, failure.failure_class) == ("partial", "oom")


def test_an_event_is_never_recorded_before_its_records(tmp_path: Path) -> None:
    """Whatever is in the database when a window's event is, its requests are there too."""
    for events in range(4, 30):
        sweep = SmallSweep(_made(tmp_path / str(events)))
        with pytest.raises(Crashed):
            sweep.run(crash_after=events)
        for (launch, attempt, name), lines in sweep.lines().items():
            if name == wire.EVENTS_FILE:
                windows = sum('"event":"window"' in line for line in lines)
                records = sweep.database.lines(launch, attempt, wire.REQUESTS_FILE)
                assert len(records) >= 2 * windows


def _made(path: Path) -> Path:
    path.mkdir()
    return path
