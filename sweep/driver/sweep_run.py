"""One run of a sweep: which launch next, what is recorded, what its end means.

Plain Python over three seams (database, lanes, clock): the whole of it runs in tests without
Ray and without waiting.
"""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweep.agent import wire
from sweep.driver.confirming import Confirming
from sweep.driver.documents import launch_document
from sweep.driver.lane import (
    STOP_PATIENCE_S,
    Attached,
    Ended,
    LaunchTask,
    Lines,
    Unanswered,
)
from sweep.driver.lanes import Fetched, FetchTask, LaneFailed, LaneLost, Lanes, LanesEvent
from sweep.driver.stop_rules import Stop, failure_of, over_budget, reason_to_stop
from sweep.engines.classify import judge_launch, judge_trial
from sweep.model.experiment import Experiment, NodeSpec
from sweep.model.plan import Plan, PlannedLaunch, PlannedTrial
from sweep.model.states import Failure, LaunchState, TrialState
from sweep.ports import Clock, Engine
from sweep.store.sweep_db import AttemptRow, SweepDb

_POLL_S = 0.25
_RETRIES_INTERRUPTED = 2
_LANE_LOSSES = 5
"""Losses of one lane in a row, without a line read in between, before it is given up."""


def nodes_of(database: SweepDb) -> tuple[NodeSpec, ...]:
    """Return the nodes of a sweep: those of its file, and those on which something may still run
    of an earlier one."""
    named = database.experiment().nodes
    names = {node.name for node in named}
    left = {row.node for row in database.attempts() if row.state is LaunchState.RUNNING} - names
    return (*named, *map(NodeSpec.named, sorted(left)))


@dataclass(frozen=True)
class RunSetup:
    """What a run needs beside the sweep itself."""

    run: int
    launches_directory: Path
    """Fetched files go to <launch>/<attempt>/ below it."""
    workdirs: Mapping[str, str]
    """Node name → directory on it that holds this sweep's launch directories."""
    archive_name: str
    archive: bytes
    owner: wire.Owner
    pythons: Mapping[str, str]
    """Node name → command of the Python that runs the agent there."""
    keep_going: bool = False


@dataclass(frozen=True)
class RunResult:
    """How a run ended; `note` says why it ended early."""

    exit_code: int
    note: str | None


@dataclass
class _Running:
    """The attempt that a lane runs, with what was recorded of it."""

    launch: PlannedLaunch
    attempt: int
    trials: tuple[PlannedTrial, ...]
    task: LaunchTask
    events: list[dict[str, object]] = field(default_factory=list)
    records: list[wire.RequestRecord] = field(default_factory=list)
    losses: int = 0


@dataclass
class _LaneState:
    """One lane's queue; `paused` says why nothing more is started on it."""

    queue: deque[PlannedLaunch]
    running: _Running | None = None
    silent_since: str | None = None
    """Time of day since when the node does not answer; None: it does."""
    answers_since: str | None = None
    """Time of day since when it answers again; None: it was not silent in this run."""
    fetching: int = 0
    left: bool = False
    """Whether nothing is to be done on the node; a stop may still find a launch there."""
    paused: Failure | None = None
    stopped_arms: list[Failure] = field(default_factory=list)
    """Why nothing more is started of some arms, while the lane goes on."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Attempts of each launch that this run started."""
    deciding: str | None = None
    """The scan that has ended, and whose fastest is found once its files are here."""
    failures: list[Failure | None] = field(default_factory=list)
    """Why each launch that ended in this run was in vain; None: it was not."""


class SweepRun:
    """Runs what is missing of a plan. One use: call `run` once."""

    def __init__(
        self,
        *,
        database: SweepDb,
        lanes: Lanes,
        clock: Clock,
        engine: Engine,
        setup: RunSetup,
        stop_requested: Callable[[], str | None],
        fastest: Callable[[str], str | None],
        leave: Callable[[str], None],
    ) -> None:
        """Prepare; `fastest` returns the configuration that a scan, by its launch id, found to be
        the fastest, None: there is none. `leave` is called with a node's name when nothing is to be
        done there any more."""
        self._database = database
        self._lanes = lanes
        self._clock = clock
        self._engine = engine
        self._setup = setup
        self._stop_requested = stop_requested
        self._confirming = Confirming(database, fastest, clock)
        self._leave = leave
        self._experiment: Experiment = database.experiment()
        self._plan: Plan = database.plan()
        self._nodes = {node.name: node for node in nodes_of(database)}
        self._stopped_by: str | None = None
        self._started_s = clock.monotonic_s()
        self._driven_before_s = database.driven_s(setup.run)
        self._judged: set[str] = set()
        """Trials that this run brought to an end, good or bad: not tried twice."""
        self._unwanted: set[str] = set()
        """Launches that the plan dropped while they ran: they are only stopped."""
        self._state: dict[str, _LaneState] = {}

    def run(self) -> RunResult:
        """Run until nothing is left to do or something stops the sweep."""
        self._state = {name: _LaneState(deque()) for name in self._nodes}
        for launch in [*self._dropped(), *self._pending()]:
            self._state[launch.node].queue.append(launch)
        self._fetch_what_was_left()
        self._decide_what_was_left()
        while True:
            self._look_for_stop()
            for name, lane in self._state.items():
                if lane.running is None and lane.deciding is None:
                    self._start_next(name, lane)
                if lane.running is None and not lane.fetching and not lane.left:
                    lane.left = True
                    self._leave(name)
            if all(lane.left for lane in self._state.values()):
                break
            for name, event in self._lanes.poll(_POLL_S):
                self._handle(name, event)
        return self._result()

    # -- what to do next ---------------------------------------------------------------------

    def _pending(self) -> list[PlannedLaunch]:
        states = self._database.trial_states()
        open_attempts = {
            row.launch_id for row in self._database.attempts() if row.state is LaunchState.RUNNING
        }
        pending = [
            launch
            for launch in self._plan.launches
            if launch.launch_id in open_attempts
            or any(not states[trial.trial_id][0].is_complete for trial in launch.trials)
        ]
        self._database.plan_again([launch.launch_id for launch in pending])
        # What already runs on its node comes first: its server holds the node.
        return sorted(pending, key=lambda launch: launch.launch_id not in open_attempts)

    def _dropped(self) -> list[PlannedLaunch]:
        """Return the launches that run on a node of ours and that the plan no longer holds."""
        wanted = {launch.launch_id for launch in self._plan.launches}
        dropped = [
            self._database.launch(row.launch_id)
            for row in self._database.attempts()
            if row.state is LaunchState.RUNNING and row.launch_id not in wanted
        ]
        self._unwanted = {launch.launch_id for launch in dropped}
        return dropped

    def _fetch_what_was_left(self) -> None:
        for row in self._database.attempts():
            ended = row.state is not LaunchState.RUNNING and row.outcome is not None
            if ended and row.fetched is None and row.node in self._nodes:
                self._fetch(row.node, row.launch_id, row.attempt, row.directory)

    def _look_for_stop(self) -> None:
        asked = self._stop_requested()
        if asked is None or self._stopped_by is not None:
            return
        self._stopped_by = asked
        self._show_stage()
        self._lanes.cancel()
        for lane in self._state.values():
            lane.paused = Failure("stopped", f"the sweep was stopped ({asked})")

    def _show_stage(self) -> None:
        stage = f"stopping ({self._stopped_by})" if self._stopped_by else "running"
        for name, lane in self._state.items():
            if lane.silent_since is not None:
                stage += f"; {name} does not answer since {lane.silent_since}, trying again"
                if self._stopped_by:
                    stage += f" for at most {STOP_PATIENCE_S:g} s"
            elif lane.answers_since is not None:
                stage += f"; {name} answers again since {lane.answers_since}"
        self._database.set_stage(self._setup.run, stage)

    def _start_next(self, name: str, lane: _LaneState) -> None:
        if lane.paused is None and lane.queue and not self._is_open(lane.queue[0]):
            lane.paused = self._over_budget()
        if lane.paused is not None:
            still_open = [launch for launch in lane.queue if self._is_open(launch)]
            rest = [launch.launch_id for launch in lane.queue if launch not in still_open]
            self._database.set_not_run(rest, lane.paused)
            lane.queue = deque(still_open)
        stopped = lane.paused is not None and lane.paused.failure_class == "stopped"
        if lane.queue and (lane.paused is None or stopped):
            launch = lane.queue.popleft()
            self._start(name, lane, launch, stop=stopped or launch.launch_id in self._unwanted)

    def _is_open(self, launch: PlannedLaunch) -> bool:
        last = self._last_attempt(launch.launch_id)
        return last is not None and last.state is LaunchState.RUNNING

    def _over_budget(self) -> Failure | None:
        driven_s = self._driven_before_s + self._clock.monotonic_s() - self._started_s
        launches = len(self._database.attempts())
        return over_budget(self._experiment.budget, launches, driven_s / 3600)

    # -- starting ----------------------------------------------------------------------------

    def _last_attempt(self, launch_id: str) -> AttemptRow | None:
        rows = [row for row in self._database.attempts() if row.launch_id == launch_id]
        return max(rows, key=lambda row: row.attempt) if rows else None

    def _start(self, name: str, lane: _LaneState, launch: PlannedLaunch, *, stop: bool) -> None:
        last = self._last_attempt(launch.launch_id)
        if last is None or last.state is not LaunchState.RUNNING:
            last = self._intend(name, launch, 1 if last is None else last.attempt + 1)
        trials = tuple(trial for trial in launch.trials if trial.trial_id in last.trial_ids)
        node = self._nodes[name]
        document = self._document(launch, trials, node, last)
        task = replace(self._task(last, document), stop_at_once=stop)
        running = _Running(launch, last.attempt, trials, task)
        for line in self._database.lines(launch.launch_id, last.attempt, wire.EVENTS_FILE):
            running.events.append(json.loads(line))
        for line in self._database.lines(launch.launch_id, last.attempt, wire.REQUESTS_FILE):
            running.records.append(wire.decode_request(line))
        lane.running, lane.left = running, False
        lane.attempts[launch.launch_id] = lane.attempts.get(launch.launch_id, 0) + 1
        self._lanes.start(name, task)

    def _intend(self, name: str, launch: PlannedLaunch, attempt: int) -> AttemptRow:
        workdir = self._setup.workdirs[name]
        self._database.begin_attempt(
            launch.launch_id,
            attempt,
            run=self._setup.run,
            node=name,
            directory=f"{workdir}/{launch.launch_id}/{attempt}",
            nonce=secrets.token_hex(16),
            trial_ids=self._missing(launch),
            utc=self._clock.utc(),
        )
        row = self._last_attempt(launch.launch_id)
        assert row is not None
        return row

    def _document(
        self,
        launch: PlannedLaunch,
        trials: Sequence[PlannedTrial],
        node: NodeSpec,
        row: AttemptRow,
    ) -> str:
        document = launch_document(
            launch,
            trials,
            experiment=self._experiment,
            engine=self._engine,
            node=node,
            sweep_id=self._database.sweep_id,
            attempt=row.attempt,
            nonce=row.nonce,
            owner=self._setup.owner,
        )
        return wire.encode(document)

    def _task(self, row: AttemptRow, document: str) -> LaunchTask:
        return LaunchTask(
            launch_id=row.launch_id,
            attempt=row.attempt,
            directory=row.directory,
            document=document,
            archive_name=self._setup.archive_name,
            archive=self._setup.archive,
            python=self._setup.pythons[row.node],
            offsets=self._database.offsets(row.launch_id, row.attempt),
        )

    # -- what happens ------------------------------------------------------------------------

    def _handle(self, name: str, event: LanesEvent) -> None:
        lane = self._state[name]
        if isinstance(event, Fetched):
            lane.fetching -= 1
            if event.error is None:
                self._database.set_fetched(
                    event.task.launch_id, event.task.attempt, event.task.target
                )
            else:
                print(f"{self._clock.utc()} fetch of {event.task.directory}: {event.error}")
            if lane.deciding == event.task.launch_id:
                lane.deciding = None
                self._confirm(lane, self._database.launch(event.task.launch_id))
            return
        self._note_silence(name, lane, event)
        running = lane.running
        if running is None or isinstance(event, (Attached, Unanswered)):
            return
        if isinstance(event, Lines):
            running.losses = 0
            self._record(running, event)
        elif isinstance(event, Ended):
            self._end(name, lane, running, event)
        elif isinstance(event, LaneLost):
            self._lost(name, lane, running, event)
        else:
            self._failed(lane, running, event)

    def _note_silence(self, name: str, lane: _LaneState, event: LanesEvent) -> None:
        now = self._clock.utc()
        if isinstance(event, Unanswered) and lane.silent_since is None:
            lane.silent_since, lane.answers_since = now, None
            print(f"{now} {name} does not answer, trying again: {event.message}")
        elif lane.silent_since is None or isinstance(event, (Unanswered, LaneLost)):
            return
        else:
            lane.silent_since = None
            if isinstance(event, LaneFailed):
                print(f"{now} {name}: given up")
            else:
                lane.answers_since = now
                print(f"{now} {name} answers again")
        self._show_stage()

    def _record(self, running: _Running, event: Lines) -> None:
        ended = []
        if event.name == wire.REQUESTS_FILE:
            running.records += [wire.decode_request(line) for line in event.lines]
        else:
            parsed = [json.loads(line) for line in event.lines]
            running.events += parsed
            ended = [line["trial"] for line in parsed if line["event"] == "trial_end"]
        self._database.append(
            running.launch.launch_id,
            running.attempt,
            event.name,
            offset=event.offset,
            lines=event.lines,
            next_offset=event.next_offset,
            seen_utc=self._clock.utc(),
            trials={
                trial.trial_id: self._judge(running, trial, None)
                for trial in running.trials
                if trial.trial_id in ended
            },
        )

    def _judge(
        self, running: _Running, trial: PlannedTrial, outcome: wire.Outcome | None
    ) -> tuple[TrialState, Failure | None]:
        ends = [
            event
            for event in running.events
            if event["event"] == "trial_end" and event["trial"] == trial.trial_id
        ]
        records = [
            record
            for record in running.records
            if record.trial == trial.trial_id and record.role == "measure"
        ]
        return judge_trial(self._engine, trial, ends[-1] if ends else None, records, outcome)

    def _end(self, name: str, lane: _LaneState, running: _Running, event: Ended) -> None:
        outcome = None if event.outcome is None else wire.decode_outcome(event.outcome)
        state, failure = judge_launch(self._engine, outcome)
        trials = {trial.trial_id: self._judge(running, trial, outcome) for trial in running.trials}
        launch = running.launch
        self._database.end_attempt(
            launch.launch_id,
            running.attempt,
            state=state,
            failure=failure,
            outcome=event.outcome,
            trials=trials,
        )
        self._judged |= {
            trial_id
            for trial_id, (trial_state, _) in trials.items()
            if trial_state is not TrialState.INTERRUPTED
        }
        lane.running = None
        self._fetch(name, launch.launch_id, running.attempt, running.task.directory)
        if not event.clean:
            left = "; ".join(event.left)
            lane.paused = lane.paused or Failure("node_dirty", f"node {name} is not clean: {left}")
        if launch.launch_id in self._unwanted:
            return
        if state is not LaunchState.INTERRUPTED:
            lane.failures.append(failure_of(state, failure, trials.values()))
            keep_going = self._setup.keep_going
            works = self._works(name)
            stop = reason_to_stop(launch, lane.failures, keep_going=keep_going, works=works)
            if stop is not None:
                self._stop(lane, stop)
        if self._missing(launch) and lane.attempts[launch.launch_id] <= _RETRIES_INTERRUPTED:
            lane.queue.appendleft(launch)
        elif launch.alone and state is not LaunchState.INTERRUPTED:
            lane.deciding = launch.launch_id

    def _decide_what_was_left(self) -> None:
        """Confirm the scans that ended in an earlier run, which did not come to it."""
        for scan in self._confirming.owed():
            if self._missing(scan):
                continue
            lane = self._state[scan.node]
            last = self._last_attempt(scan.launch_id)
            if last is not None and last.fetched is None and last.outcome is not None:
                lane.deciding = scan.launch_id  # its files are on their way
            else:
                self._confirm(lane, scan)

    def _confirm(self, lane: _LaneState, scan: PlannedLaunch) -> None:
        launch = self._confirming.add(scan)
        if launch is not None:
            lane.queue.appendleft(launch)

    def _works(self, name: str) -> bool:
        states = self._database.trial_states()
        return any(
            states[trial.trial_id][0] in (TrialState.OK, TrialState.PARTIAL)
            for launch in self._plan.launches
            if launch.node == name
            for trial in launch.trials
        )

    def _stop(self, lane: _LaneState, stop: Stop) -> None:
        if stop.arm is None:
            lane.paused = lane.paused or stop.reason
            return
        own = [each for each in lane.queue if each.arm == stop.arm and not self._is_open(each)]
        self._database.set_not_run([launch.launch_id for launch in own], stop.reason)
        lane.queue = deque(launch for launch in lane.queue if launch not in own)
        lane.stopped_arms.append(stop.reason)

    def _missing(self, launch: PlannedLaunch) -> list[str]:
        """Return the trials of a launch that this run still owes: interrupted or never tried."""
        states = self._database.trial_states()
        return [
            trial.trial_id
            for trial in launch.trials
            if trial.trial_id not in self._judged and not states[trial.trial_id][0].is_complete
        ]

    def _lost(self, name: str, lane: _LaneState, running: _Running, event: LaneLost) -> None:
        running.losses += 1
        print(f"{self._clock.utc()} lane {name} lost ({event.reason}), attaching again")
        if running.losses > _LANE_LOSSES:
            self._failed(
                lane, running, LaneFailed(f"lane {name} was lost {running.losses} times", None)
            )
            return
        offsets = self._database.offsets(running.launch.launch_id, running.attempt)
        stop = running.task.stop_at_once or self._stopped_by is not None
        running.task = replace(running.task, offsets=offsets, stop_at_once=stop)
        self._lanes.start(name, running.task)

    def _failed(self, lane: _LaneState, running: _Running, event: LaneFailed) -> None:
        """The node refuses: the attempt stays open, so that resume attaches to what runs."""
        hint = f" ({event.hint})" if event.hint else ""
        lane.paused = Failure("node_error", f"{event.message}{hint}")
        lane.running = None
        print(f"{self._clock.utc()} launch {running.launch.launch_id}: {event.message}{hint}")

    def _fetch(self, name: str, launch_id: str, attempt: int, directory: str) -> None:
        target = self._setup.launches_directory / launch_id / str(attempt)
        task = FetchTask(launch_id, attempt, directory, str(target), self._experiment.keep)
        self._state[name].fetching += 1
        self._lanes.fetch(name, task)

    # -- the end -----------------------------------------------------------------------------

    def _result(self) -> RunResult:
        reasons = [
            reason
            for lane in self._state.values()
            for reason in (*lane.stopped_arms, lane.paused)
            if reason is not None
        ]
        notes = [reason.message for reason in reasons]
        note = "; ".join(dict.fromkeys(notes)) or None
        if self._stopped_by is not None:
            return RunResult(130, note)
        states = self._database.trial_states().values()
        complete = all(state.is_complete for state, _, _ in states)
        return RunResult(0 if complete and note is None else 1, note)
