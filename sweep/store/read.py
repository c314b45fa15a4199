"""A sweep's database as the value that the analysis takes."""

from __future__ import annotations

import json

from sweep.agent.wire import EVENTS_FILE, REQUESTS_FILE, decode_outcome, decode_request
from sweep.model.record import AttemptRecord, LaunchRecord, SweepRecord, TrialRecord
from sweep.store.sweep_db import AttemptRow, NodeRow, SweepDb


def read_sweep(database: SweepDb) -> SweepRecord:
    """Read everything that belongs to the current plan, as of one moment."""
    with database.snapshot():
        return _read(database)


def _read(database: SweepDb) -> SweepRecord:
    plan = database.plan()
    launch_states = database.launch_states()
    trial_states = database.trial_states()
    attempts: dict[str, list[AttemptRecord]] = {}
    nodes = database.nodes()
    for row in database.attempts():
        if row.launch_id in launch_states:
            attempt = _attempt(database, row, nodes.get(row.node))
            attempts.setdefault(row.launch_id, []).append(attempt)
    launches = tuple(
        LaunchRecord(
            launch, *launch_states[launch.launch_id], tuple(attempts.get(launch.launch_id, ()))
        )
        for launch in plan.launches
    )
    trials = tuple(
        TrialRecord(trial, launch, *trial_states[trial.trial_id])
        for launch in plan.launches
        for trial in launch.trials
    )
    notes = [run.note for run in database.runs() if run.note]
    return SweepRecord(
        sweep_id=database.sweep_id,
        experiment=database.experiment(),
        launches=launches,
        trials=trials,
        skipped=plan.skipped,
        created_utc=database.meta("created_utc") or "",
        driver_note=notes[-1] if notes else None,
    )


def _attempt(database: SweepDb, row: AttemptRow, node: NodeRow | None) -> AttemptRecord:
    events = database.lines(row.launch_id, row.attempt, EVENTS_FILE)
    requests = database.lines(row.launch_id, row.attempt, REQUESTS_FILE)
    return AttemptRecord(
        launch_id=row.launch_id,
        attempt=row.attempt,
        node=row.node,
        intent_utc=row.intent_utc,
        state=row.state,
        failure=row.failure,
        events=tuple(json.loads(line) for line in events),
        requests=tuple(decode_request(line) for line in requests),
        outcome=None if row.outcome is None else decode_outcome(row.outcome),
        directory=row.fetched,
        engine_version=node.engine_version if node else None,
    )
