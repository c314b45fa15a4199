"""How far a sweep is, from its database alone: for `status` and the live view."""

from __future__ import annotations

import datetime as dt
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.agent.wire import EVENTS_FILE, decode_outcome
from sweep.model.plan import PlannedLaunch, PlannedTrial
from sweep.model.states import Failure, LaunchState, TrialState
from sweep.store.sweep_db import AttemptRow, RunRow, SweepDb


@dataclass(frozen=True)
class Now:
    """What the running attempt does. Times are seconds of the controller's clock; None: not yet."""

    launch_id: str
    label: str
    node: str
    attempt: int
    phase: str | None
    phase_for_s: float | None
    milestone: str | None
    """Last load milestone seen."""
    trial: str | None
    windows: int
    """Windows of the current trial that ended."""
    max_windows: int
    note: str | None
    """Who holds the claim, while waiting for it."""
    running_for_s: float
    """Since it has its GPUs."""


@dataclass(frozen=True)
class LaunchLine:
    """One launch in the overview."""

    launch_id: str
    label: str
    node: str
    role: str
    state: LaunchState
    failure: Failure | None
    attempts: int
    trials: Mapping[str, int]
    """State → number of trials."""
    trial_failures: Mapping[str, str]
    """Class of failure → message of the first trial that has it, beside the launch's own."""
    duration_s: float | None
    """Of the last attempt that ended, on the node's clock."""


@dataclass(frozen=True)
class Progress:
    """A sweep at one moment."""

    sweep_id: str
    name: str
    driver: str
    """running, ended (exit code), or dead since …"""
    driver_alive: bool
    stage: str | None
    note: str | None
    launches: tuple[LaunchLine, ...]
    now: tuple[Now, ...]
    finished: int
    eta_s: float | None
    """None: unknown, because no launch of this run has ended yet."""


def eta_s(
    durations_s: Sequence[float], waiting: int, running_for_s: Sequence[float]
) -> float | None:
    """Return the expected rest [s]: the median duration of launches that this run completed, for
    each launch that waits and for what is left of those that run. None without such a launch:
    what an earlier run completed says nothing about the time from now on."""
    if not durations_s:
        return None
    median_s = statistics.median(durations_s)
    return median_s * waiting + sum(max(0.0, median_s - run_s) for run_s in running_for_s)


def _longest_s(
    durations_s: Mapping[str, Sequence[float]],
    waiting: Sequence[LaunchLine],
    running: Sequence[Now],
) -> float | None:
    """Return the rest [s] of the node that takes longest: all work at the same time. A node that
    has completed nothing yet is taken for one like the others."""
    every = [duration for own in durations_s.values() for duration in own]
    found = [
        eta_s(
            durations_s.get(node, every),
            sum(line.node == node for line in waiting),
            [now.running_for_s for now in running if now.node == node],
        )
        for node in {line.node for line in waiting} | {now.node for now in running}
    ]
    known = [each for each in found if each is not None]
    if len(known) < len(found) or not every:
        return None
    return max(known, default=0.0)


def read_progress(database: SweepDb, now_utc: str, *, driver_alive: bool) -> Progress:
    """Read how far the sweep is. `driver_alive`: whether the last run's process lives."""
    with database.snapshot():
        plan = database.plan()
        launch_states = database.launch_states()
        trial_states = database.trial_states()
        attempts = database.attempts()
        runs = database.runs()
        events = {
            (row.launch_id, row.attempt): database.seen_lines(
                row.launch_id,
                row.attempt,
                EVENTS_FILE,
                ends_only=row.state is not LaunchState.RUNNING,
            )
            for row in attempts
        }
    run = runs[-1] if runs else None
    by_launch: dict[str, list[AttemptRow]] = {}
    for row in attempts:
        by_launch.setdefault(row.launch_id, []).append(row)
    lines = tuple(
        _launch_line(
            launch,
            *launch_states[launch.launch_id],
            attempts=by_launch.get(launch.launch_id, ()),
            events=events,
            trial_states=trial_states,
        )
        for launch in plan.launches
    )
    running = [
        (launch, by_launch[launch.launch_id][-1])
        for launch in plan.launches
        if launch_states[launch.launch_id][0] is LaunchState.RUNNING
    ]
    now = tuple(
        _now(launch, row, events[row.launch_id, row.attempt], now_utc) for launch, row in running
    )
    durations: dict[str, list[float]] = {}
    for row in attempts:
        if run is not None and row.run == run.run and row.state is LaunchState.DONE:
            duration = _duration_s(row, events)
            if duration is not None:
                durations.setdefault(row.node, []).append(duration)
    tried = {row.launch_id for row in attempts if run is not None and row.run == run.run}
    waiting = [
        line
        for line in lines
        if line.state is LaunchState.PLANNED
        or (driver_alive and line.launch_id not in tried and _is_to_be_run(line))
    ]
    return Progress(
        sweep_id=database.sweep_id,
        name=database.experiment().name,
        driver=_driver(run, driver_alive, events),
        driver_alive=driver_alive,
        stage=run.stage if run and driver_alive else None,
        note=run.note if run else None,
        launches=lines,
        now=now,
        finished=sum(line.state.is_finished and line not in waiting for line in lines),
        eta_s=_longest_s(durations, waiting, now),
    )


def _is_to_be_run(line: LaunchLine) -> bool:
    """Whether a run that has not tried a launch yet is going to: it ended in an earlier run, but
    not with all trials complete."""
    if line.state in (LaunchState.RUNNING, LaunchState.NOT_RUN):
        return False
    return any(not TrialState(name).is_complete for name in line.trials)


def _driver(
    run: RunRow | None,
    alive: bool,
    events: Mapping[tuple[str, int], Sequence[tuple[str, str]]],
) -> str:
    if run is None:
        return "never started"
    if run.exit_code is not None:
        return f"ended {run.ended_utc} with exit code {run.exit_code}"
    if alive:
        return f"running since {run.started_utc} (pid {run.pid} on {run.host})"
    seen = [lines[-1][1] for lines in events.values() if lines]
    last = max([run.started_utc, *seen])
    return f"dead since {last} or soon after (pid {run.pid} on {run.host})"


def _launch_line(
    launch: PlannedLaunch,
    state: LaunchState,
    failure: Failure | None,
    *,
    attempts: Sequence[AttemptRow],
    events: Mapping[tuple[str, int], Sequence[tuple[str, str]]],
    trial_states: Mapping[str, tuple[TrialState, Failure | None, int | None]],
) -> LaunchLine:
    ended = [row for row in attempts if row.state is not LaunchState.RUNNING]
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for trial in launch.trials:
        trial_state, reason, _ = trial_states[trial.trial_id]
        counts[trial_state.value] = counts.get(trial_state.value, 0) + 1
        if reason is not None and reason != failure:
            reasons.setdefault(reason.failure_class, reason.message)
    return LaunchLine(
        launch_id=launch.launch_id,
        label=launch.label,
        node=launch.node,
        role=launch.role.value,
        state=state,
        failure=failure,
        attempts=len(attempts),
        trials=counts,
        trial_failures=reasons,
        duration_s=_duration_s(ended[-1], events) if ended else None,
    )


def _duration_s(
    row: AttemptRow, events: Mapping[tuple[str, int], Sequence[tuple[str, str]]]
) -> float | None:
    """Return the time from an attempt's first event to its last, on the node's own clock, without
    what it waited for others to give the GPUs free."""
    lines = events[row.launch_id, row.attempt]
    if not lines:
        return None
    first_s, last_s = (float(json.loads(lines[at][0])["t_s"]) for at in (0, -1))
    if last_s < first_s:
        return None  # the node was booted in between
    waited_s = (
        0.0 if row.outcome is None else decode_outcome(row.outcome).phases_s.get("claim", 0.0)
    )
    return max(0.0, last_s - first_s - waited_s)


def _now(
    launch: PlannedLaunch, row: AttemptRow, lines: Sequence[tuple[str, str]], now_utc: str
) -> Now:
    events: list[tuple[dict[str, Any], str]] = [(json.loads(text), seen) for text, seen in lines]
    phases = [(event, seen) for event, seen in events if event["event"] == "phase"]
    milestones = [event["name"] for event, _ in events if event["event"] == "milestone"]
    waits = [event["owner"] for event, _ in events if event["event"] == "claim_wait"]
    phase, phase_seen = phases[-1] if phases else ({}, None)
    trials = {trial.trial_id: trial for trial in launch.trials}
    trial = trials.get(phase.get("trial") or "")
    windows = [
        event
        for event, _ in events
        if event["event"] == "window" and trial and event["trial"] == trial.trial_id
    ]
    loading = phase.get("phase") in {"load", "ready"}
    return Now(
        launch_id=launch.launch_id,
        label=launch.label,
        node=launch.node,
        attempt=row.attempt,
        phase=phase.get("phase"),
        phase_for_s=None if phase_seen is None else _between_s(phase_seen, now_utc),
        milestone=milestones[-1] if milestones and loading else None,
        trial=_trial_name(trial) if trial else None,
        windows=len(windows),
        max_windows=trial.workload.repeats.max if trial else 0,
        note=_owner(waits[-1]) if waits and phase.get("phase") == "claim" else None,
        running_for_s=_between_s(_begun_utc(phases) or now_utc, now_utc),
    )


def _begun_utc(phases: Sequence[tuple[dict[str, Any], str]]) -> str | None:
    """Return when a launch had its GPUs; None: it waits for them."""
    own = [seen for event, seen in phases if event.get("phase") != "claim"]
    return own[0] if own else None


def _trial_name(trial: PlannedTrial) -> str:
    """Return what tells a trial from the others of its launch."""
    place = f"{trial.workload.name}, concurrency {trial.concurrency}"
    return f"{trial.configuration.label}, {place}" if trial.pinned else place


def _owner(owner: Any) -> str:
    return owner if isinstance(owner, str) else json.dumps(owner)


def _between_s(start_utc: str, end_utc: str) -> float:
    """Return the seconds between two times of the controller's own clock, never below 0."""
    start, end = (dt.datetime.fromisoformat(text) for text in (start_utc, end_utc))
    return max(0.0, (end - start).total_seconds())
