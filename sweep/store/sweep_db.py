"""sweep.db: everything a sweep knows, in SQLite with one writer, the driver.

WAL with synchronous FULL: what `append` and the other writers returned from survives a crash of
the machine. Lines of the node's files, the offset read so far and the states that follow from
them change in one transaction, so a reader never sees a state without its evidence.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.model.errors import StoreError
from sweep.model.experiment import Experiment
from sweep.model.plan import Plan, PlannedLaunch
from sweep.model.states import Failure, LaunchState, TrialState
from sweep.store import plan_json
from sweep.store.connection import DB_FILE, SCHEMA, SCHEMA_VERSION, Connection
from sweep.store.reader import AttemptRow, NodeRow, RunRow, SweepReader

__all__ = ["DB_FILE", "AttemptRow", "NodeRow", "PlanChange", "RunRow", "SweepDb"]


@dataclass(frozen=True)
class PlanChange:
    """What a new plan did to the launches and trials already there, in trials."""

    kept: int
    new: int
    dropped: int


def _columns(failure: Failure | None) -> tuple[str | None, str | None]:
    return (None, None) if failure is None else (failure.failure_class, failure.message)


class SweepDb(SweepReader):
    """The database of one sweep. Every method raises StoreError when SQLite does."""

    # -- opening -----------------------------------------------------------------------------

    @classmethod
    def create(cls, directory: Path, sweep_id: str, name: str, created_utc: str) -> SweepDb:
        """Make the database of a new sweep."""
        facts = [
            ("schema", SCHEMA_VERSION),
            ("sweep_id", sweep_id),
            ("name", name),
            ("created_utc", created_utc),
        ]
        connection = Connection(directory / DB_FILE, create=True)
        try:
            with connection.writing() as cursor:
                for statement in SCHEMA.split(";"):
                    cursor.execute(statement)
                cursor.executemany("INSERT INTO meta VALUES (?, ?)", facts)
        except StoreError:
            connection.close()
            raise
        return cls(connection)

    @classmethod
    def open(cls, directory: Path) -> SweepDb:
        """Open the database of an existing sweep, refusing another schema."""
        path = directory / DB_FILE
        if not path.is_file():
            raise StoreError(
                f"{directory} holds no {DB_FILE}", hint="`sweep list` shows the sweeps there are"
            )
        database = cls(Connection(path, create=False))
        try:
            database._require_schema()
        except StoreError:
            database.close()
            raise
        return database

    def _require_schema(self) -> None:
        if not self._connection.rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'"):
            raise StoreError(
                f"{self.path} is empty: its sweep never began", hint=f"delete {self.path.parent}"
            )
        found = self.meta("schema")
        if found != SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} has schema {found}, this sweep reads {SCHEMA_VERSION}",
                hint="use the version of sweep that wrote it",
            )

    # -- the plan ----------------------------------------------------------------------------

    def set_plan(
        self, experiment: Experiment, plan: Plan, nodes: Mapping[str, NodeRow]
    ) -> PlanChange:
        """Make `plan` the current one. Rows of trials it does not hold stay, outside it.

        `nodes` are by name. A node's engine version is part of the identity of every launch on
        it, so it holds for all attempts of the plan there. Launches that were added to confirm a
        scan stay with it.
        """
        launches = self._with_confirmations(plan)
        with self._connection.writing() as cursor:
            before = {
                row["trial_id"]
                for row in cursor.execute("SELECT trial_id FROM trial WHERE in_plan = 1")
            }
            known = {row["trial_id"] for row in cursor.execute("SELECT trial_id FROM trial")}
            cursor.execute(
                "INSERT OR REPLACE INTO meta VALUES ('experiment', ?)",
                (plan_json.encode_experiment(experiment),),
            )
            cursor.execute(
                "INSERT OR REPLACE INTO meta VALUES ('excluded', ?)", (str(plan.excluded),)
            )
            cursor.execute("DELETE FROM node")
            cursor.executemany(
                "INSERT INTO node VALUES (?, ?, ?)",
                [(name, node.engine_version, node.workdir) for name, node in nodes.items()],
            )
            cursor.execute("UPDATE launch SET in_plan = 0, position = NULL")
            cursor.execute("UPDATE trial SET in_plan = 0")
            cursor.execute("DELETE FROM skipped")
            for position, launch in enumerate(launches):
                self._put_launch(cursor, position, launch)
            for position, skipped in enumerate(plan.skipped):
                cursor.execute(
                    "INSERT INTO skipped VALUES (?, ?)",
                    (position, plan_json.encode_skipped(skipped)),
                )
        planned = {trial.trial_id for launch in launches for trial in launch.trials}
        return PlanChange(len(planned & known), len(planned - known), len(before - planned))

    def _with_confirmations(self, plan: Plan) -> list[PlannedLaunch]:
        workloads = self._workloads()
        rows = self._connection.rows("SELECT document FROM launch ORDER BY rowid")
        known = [plan_json.decode_launch(row["document"], workloads) for row in rows]
        return [
            each
            for launch in plan.launches
            for each in (launch, *(own for own in known if own.confirms == launch.launch_id))
        ]

    def add_launch(self, launch: PlannedLaunch, after: str) -> None:
        """Add a launch to the current plan, behind the one with the id `after`."""
        with self._connection.writing() as cursor:
            position = cursor.execute(
                "SELECT position FROM launch WHERE launch_id = ?", (after,)
            ).fetchone()["position"]
            cursor.execute(
                "UPDATE launch SET position = position + 1 WHERE in_plan = 1 AND position > ?",
                (position,),
            )
            self._put_launch(cursor, position + 1, launch)

    def _put_launch(self, cursor: sqlite3.Cursor, position: int, launch: PlannedLaunch) -> None:
        for trial in launch.trials:
            cursor.execute(
                "INSERT OR IGNORE INTO workload VALUES (?, ?)",
                plan_json.encode_workload(trial.workload),
            )
            cursor.execute(
                "INSERT INTO trial (trial_id, launch_id, in_plan, state) VALUES (?, ?, 1, ?) "
                "ON CONFLICT (trial_id) DO UPDATE SET in_plan = 1",
                (trial.trial_id, launch.launch_id, TrialState.PLANNED),
            )
        cursor.execute(
            "INSERT INTO launch (launch_id, position, in_plan, document, state) "
            "VALUES (?, ?, 1, ?, ?) ON CONFLICT (launch_id) DO UPDATE SET "
            "position = excluded.position, in_plan = 1, document = excluded.document",
            (launch.launch_id, position, plan_json.encode_launch(launch), LaunchState.PLANNED),
        )

    # -- what the driver writes --------------------------------------------------------------

    def begin_run(
        self, pid: int, start_ticks: int, boot_id: str, host: str, started_utc: str
    ) -> int:
        """Record a driver process and return the number of its run."""
        with self._connection.writing() as cursor:
            cursor.execute(
                "INSERT INTO run (pid, start_ticks, boot_id, host, started_utc, stage) "
                "VALUES (?, ?, ?, ?, ?, 'starting')",
                (pid, start_ticks, boot_id, host, started_utc),
            )
            return int(cursor.lastrowid or 0)

    def set_stage(self, run: int, stage: str) -> None:
        """Record what the driver itself does."""
        with self._connection.writing() as cursor:
            cursor.execute("UPDATE run SET stage = ? WHERE run = ?", (stage, run))

    def end_run(self, run: int, ended_utc: str, exit_code: int, note: str | None) -> None:
        """Record how a driver process ended."""
        with self._connection.writing() as cursor:
            cursor.execute(
                "UPDATE run SET ended_utc = ?, exit_code = ?, note = ?, stage = 'ended' "
                "WHERE run = ?",
                (ended_utc, exit_code, note, run),
            )

    def begin_attempt(
        self,
        launch_id: str,
        attempt: int,
        *,
        run: int,
        node: str,
        directory: str,
        nonce: str,
        trial_ids: Sequence[str],
        utc: str,
    ) -> None:
        """Record the intent to start an attempt, before anything is sent to the node."""
        with self._connection.writing() as cursor:
            cursor.execute(
                "INSERT INTO attempt (launch_id, attempt, run, node, directory, nonce, trial_ids, "
                "intent_utc, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    launch_id,
                    attempt,
                    run,
                    node,
                    directory,
                    nonce,
                    json.dumps(list(trial_ids)),
                    utc,
                    LaunchState.RUNNING,
                ),
            )
            cursor.execute(
                "UPDATE launch SET state = ?, failure_class = NULL, message = NULL "
                "WHERE launch_id = ?",
                (LaunchState.RUNNING, launch_id),
            )

    def append(
        self,
        launch_id: str,
        attempt: int,
        name: str,
        *,
        offset: int,
        lines: Sequence[str],
        next_offset: int,
        seen_utc: str,
        trials: Mapping[str, tuple[TrialState, Failure | None]] | None = None,
    ) -> None:
        """Record lines read at `offset` of a node's file, and the states that follow from them.

        `offset` must be where the last append ended; anything else is a StoreError, because it
        would lose or repeat lines.
        """
        with self._connection.writing() as cursor:
            have = self._offset(cursor, launch_id, attempt, name)
            if have != offset:
                raise StoreError(
                    f"{name} of launch {launch_id} attempt {attempt}: "
                    f"recorded up to {have}, offered {offset}"
                )
            first = cursor.execute(
                "SELECT count(*) AS n FROM line WHERE launch_id = ? AND attempt = ? AND name = ?",
                (launch_id, attempt, name),
            ).fetchone()["n"]
            cursor.executemany(
                "INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (launch_id, attempt, name, first + index, text, seen_utc)
                    for index, text in enumerate(lines)
                ],
            )
            cursor.execute(
                "INSERT OR REPLACE INTO stream VALUES (?, ?, ?, ?)",
                (launch_id, attempt, name, next_offset),
            )
            self._set_trials(cursor, attempt, trials or {})

    def end_attempt(
        self,
        launch_id: str,
        attempt: int,
        *,
        state: LaunchState,
        failure: Failure | None,
        outcome: str | None,
        trials: Mapping[str, tuple[TrialState, Failure | None]],
    ) -> None:
        """Record how an attempt ended, with its trials, in one transaction."""
        with self._connection.writing() as cursor:
            values = (state, *_columns(failure))
            cursor.execute(
                "UPDATE attempt SET state = ?, failure_class = ?, message = ?, outcome = ? "
                "WHERE launch_id = ? AND attempt = ?",
                (*values, outcome, launch_id, attempt),
            )
            cursor.execute(
                "UPDATE launch SET state = ?, failure_class = ?, message = ? WHERE launch_id = ?",
                (*values, launch_id),
            )
            self._set_trials(cursor, attempt, trials)

    def _set_trials(
        self,
        cursor: sqlite3.Cursor,
        attempt: int | None,
        trials: Mapping[str, tuple[TrialState, Failure | None]],
    ) -> None:
        for trial_id, (state, failure) in trials.items():
            cursor.execute(
                "UPDATE trial SET state = ?, failure_class = ?, message = ?, "
                "attempt = coalesce(?, attempt) WHERE trial_id = ?",
                (state, *_columns(failure), attempt, trial_id),
            )

    def set_not_run(self, launch_ids: Sequence[str], reason: Failure) -> None:
        """Record that launches, and their trials that were not tried, were not run, and why."""
        self._move(launch_ids, LaunchState.PLANNED, LaunchState.NOT_RUN, reason)

    def plan_again(self, launch_ids: Sequence[str]) -> None:
        """Put launches and trials that an earlier run did not come to back among the planned."""
        self._move(launch_ids, LaunchState.NOT_RUN, LaunchState.PLANNED, None)

    def _move(
        self, launch_ids: Sequence[str], old: LaunchState, new: LaunchState, why: Failure | None
    ) -> None:
        """Change the state of those launches and of those of their trials that are in `old`."""
        values = [(new, *_columns(why), launch_id, old) for launch_id in launch_ids]
        with self._connection.writing() as cursor:
            cursor.executemany(
                "UPDATE launch SET state = ?, failure_class = ?, message = ? "
                "WHERE launch_id = ? AND in_plan = 1 AND state = ?",
                values,
            )
            cursor.executemany(
                "UPDATE trial SET state = ?, failure_class = ?, message = ? "
                "WHERE launch_id = ? AND in_plan = 1 AND state = ?",
                values,
            )

    def set_fetched(self, launch_id: str, attempt: int, directory: str) -> None:
        """Record where an attempt's files were fetched to."""
        with self._connection.writing() as cursor:
            cursor.execute(
                "UPDATE attempt SET fetched = ? WHERE launch_id = ? AND attempt = ?",
                (directory, launch_id, attempt),
            )

    @staticmethod
    def _offset(cursor: sqlite3.Cursor, launch_id: str, attempt: int, name: str) -> int:
        row = cursor.execute(
            "SELECT next_offset FROM stream WHERE launch_id = ? AND attempt = ? AND name = ?",
            (launch_id, attempt, name),
        ).fetchone()
        return int(row["next_offset"]) if row else 0
