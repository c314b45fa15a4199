"""sweep.db: everything a sweep knows, in SQLite with one writer, the driver.

WAL with synchronous FULL: what `append` and the other writers returned from survives a crash of
the machine. Lines of the node's files, the offset read so far and the states that follow from
them change in one transaction, so a reader never sees a state without its evidence.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.model.errors import StoreError
from sweep.model.experiment import Experiment
from sweep.model.plan import Plan, PlannedLaunch
from sweep.model.states import Failure, LaunchState, TrialState
from sweep.store import plan_json

DB_FILE = "sweep.db"
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE workload (workload_id TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE launch (
  launch_id TEXT PRIMARY KEY, position INTEGER, in_plan INTEGER NOT NULL,
  document TEXT NOT NULL, state TEXT NOT NULL, failure_class TEXT, message TEXT);
CREATE TABLE trial (
  trial_id TEXT PRIMARY KEY, launch_id TEXT NOT NULL, in_plan INTEGER NOT NULL,
  state TEXT NOT NULL, failure_class TEXT, message TEXT, attempt INTEGER);
CREATE TABLE skipped (position INTEGER PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE attempt (
  launch_id TEXT NOT NULL, attempt INTEGER NOT NULL, run INTEGER NOT NULL, node TEXT NOT NULL,
  directory TEXT NOT NULL, nonce TEXT NOT NULL, trial_ids TEXT NOT NULL, intent_utc TEXT NOT NULL,
  state TEXT NOT NULL, failure_class TEXT, message TEXT, outcome TEXT, fetched TEXT,
  PRIMARY KEY (launch_id, attempt));
CREATE TABLE stream (
  launch_id TEXT NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL, next_offset INTEGER
  NOT NULL, PRIMARY KEY (launch_id, attempt, name));
CREATE TABLE line (
  launch_id TEXT NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL, n INTEGER NOT NULL,
  text TEXT NOT NULL, seen_utc TEXT NOT NULL,
  PRIMARY KEY (launch_id, attempt, name, n)) WITHOUT ROWID;
CREATE TABLE run (
  run INTEGER PRIMARY KEY, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL,
  boot_id TEXT NOT NULL, host TEXT NOT NULL, started_utc TEXT NOT NULL, stage TEXT NOT NULL,
  ended_utc TEXT, exit_code INTEGER, note TEXT);
"""


@dataclass(frozen=True)
class PlanChange:
    """What a new plan did to the launches and trials already there, in trials."""

    kept: int
    new: int
    dropped: int


@dataclass(frozen=True)
class AttemptRow:
    """An attempt as the driver needs it; `fetched` is a local directory or None."""

    launch_id: str
    attempt: int
    run: int
    node: str
    directory: str
    nonce: str
    trial_ids: tuple[str, ...]
    intent_utc: str
    state: LaunchState
    failure: Failure | None
    outcome: str | None
    fetched: str | None


@dataclass(frozen=True)
class RunRow:
    """One driver process; exit_code None: it has not ended, or it was killed."""

    run: int
    pid: int
    start_ticks: int
    boot_id: str
    host: str
    started_utc: str
    stage: str
    """What the driver itself does, for people: starting Ray, running, stopping."""
    ended_utc: str | None
    exit_code: int | None
    note: str | None


def _failure(failure_class: str | None, message: str | None) -> Failure | None:
    return None if failure_class is None else Failure(failure_class, message or "")


def _columns(failure: Failure | None) -> tuple[str | None, str | None]:
    return (None, None) if failure is None else (failure.failure_class, failure.message)


class SweepDb:
    """The database of one sweep. Every method raises StoreError when SQLite does."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    # -- opening -----------------------------------------------------------------------------

    @classmethod
    def create(cls, directory: Path, sweep_id: str, name: str, created_utc: str) -> SweepDb:
        """Make the database of a new sweep."""
        database = cls._connect(directory / DB_FILE, create=True)
        database._create_schema(sweep_id, name, created_utc)  # noqa: SLF001 - our own constructor
        return database

    def _create_schema(self, sweep_id: str, name: str, created_utc: str) -> None:
        self.path.chmod(0o600)
        facts = [
            ("schema", str(SCHEMA_VERSION)),
            ("sweep_id", sweep_id),
            ("name", name),
            ("created_utc", created_utc),
        ]
        with self._writing() as cursor:
            for statement in _SCHEMA.split(";"):
                cursor.execute(statement)
            cursor.executemany("INSERT INTO meta VALUES (?, ?)", facts)

    @classmethod
    def open(cls, directory: Path) -> SweepDb:
        """Open the database of an existing sweep, refusing another schema."""
        path = directory / DB_FILE
        if not path.is_file():
            raise StoreError(
                f"{directory} holds no {DB_FILE}", hint="`sweep list` shows the sweeps there are"
            )
        database = cls._connect(path, create=False)
        found = database.meta("schema")
        if found != str(SCHEMA_VERSION):
            raise StoreError(
                f"{path} has schema {found}, this sweep reads {SCHEMA_VERSION}",
                hint="use the version of sweep that wrote it",
            )
        return database

    @classmethod
    def _connect(cls, path: Path, *, create: bool) -> SweepDb:
        mode = "rwc" if create else "rw"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        try:
            connection = sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
        except sqlite3.Error as error:
            raise StoreError(
                f"cannot open {path}: {error}", hint="check the disk and the permissions"
            ) from error
        return cls(connection, path)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise StoreError(
                f"cannot write {self.path}: {error}",
                hint="free space on that disk, then `sweep resume`: what was recorded is kept",
            ) from error
        except BaseException:
            self._rollback()
            raise

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"cannot read {self.path}: {error}") from error

    def meta(self, key: str) -> str | None:
        """Return one fact of the sweep, None when it was never set."""
        rows = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return str(rows[0]["value"]) if rows else None

    @property
    def sweep_id(self) -> str:
        """The sweep's id, which is also its directory's name."""
        return self.meta("sweep_id") or ""

    # -- the plan ----------------------------------------------------------------------------

    def set_plan(self, experiment: Experiment, plan: Plan) -> PlanChange:
        """Make `plan` the current one. Rows of trials it does not hold stay, outside it."""
        with self._writing() as cursor:
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
            cursor.execute("UPDATE launch SET in_plan = 0, position = NULL")
            cursor.execute("UPDATE trial SET in_plan = 0")
            cursor.execute("DELETE FROM skipped")
            for position, launch in enumerate(plan.launches):
                self._put_launch(cursor, position, launch)
            for position, skipped in enumerate(plan.skipped):
                cursor.execute(
                    "INSERT INTO skipped VALUES (?, ?)",
                    (position, plan_json.encode_skipped(skipped)),
                )
        planned = {trial.trial_id for launch in plan.launches for trial in launch.trials}
        return PlanChange(len(planned & known), len(planned - known), len(before - planned))

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
        with self._writing() as cursor:
            cursor.execute(
                "INSERT INTO run (pid, start_ticks, boot_id, host, started_utc, stage) "
                "VALUES (?, ?, ?, ?, ?, 'starting')",
                (pid, start_ticks, boot_id, host, started_utc),
            )
            return int(cursor.lastrowid or 0)

    def set_stage(self, run: int, stage: str) -> None:
        """Record what the driver itself does."""
        with self._writing() as cursor:
            cursor.execute("UPDATE run SET stage = ? WHERE run = ?", (stage, run))

    def end_run(self, run: int, ended_utc: str, exit_code: int, note: str | None) -> None:
        """Record how a driver process ended."""
        with self._writing() as cursor:
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
        with self._writing() as cursor:
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
        with self._writing() as cursor:
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
        with self._writing() as cursor:
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
        """Record that launches, and their trials that are not complete, were not run, and why."""
        with self._writing() as cursor:
            for launch_id in launch_ids:
                cursor.execute(
                    "UPDATE launch SET state = ?, failure_class = ?, message = ? "
                    "WHERE launch_id = ? AND state IN (?, ?)",
                    (
                        LaunchState.NOT_RUN,
                        *_columns(reason),
                        launch_id,
                        LaunchState.PLANNED,
                        LaunchState.NOT_RUN,
                    ),
                )
                cursor.execute(
                    "UPDATE trial SET state = ?, failure_class = ?, message = ? "
                    "WHERE launch_id = ? AND in_plan = 1 AND state IN (?, ?)",
                    (
                        TrialState.NOT_RUN,
                        *_columns(reason),
                        launch_id,
                        TrialState.PLANNED,
                        TrialState.NOT_RUN,
                    ),
                )

    def set_fetched(self, launch_id: str, attempt: int, directory: str) -> None:
        """Record where an attempt's files were fetched to."""
        with self._writing() as cursor:
            cursor.execute(
                "UPDATE attempt SET fetched = ? WHERE launch_id = ? AND attempt = ?",
                (directory, launch_id, attempt),
            )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all reads inside see one and the same state."""
        self._rows("BEGIN")
        try:
            self._rows("SELECT count(*) FROM meta")
            yield
        finally:
            self._rollback()

    # -- what everybody reads ----------------------------------------------------------------

    @staticmethod
    def _offset(cursor: sqlite3.Cursor, launch_id: str, attempt: int, name: str) -> int:
        row = cursor.execute(
            "SELECT next_offset FROM stream WHERE launch_id = ? AND attempt = ? AND name = ?",
            (launch_id, attempt, name),
        ).fetchone()
        return int(row["next_offset"]) if row else 0

    def offsets(self, launch_id: str, attempt: int) -> dict[str, int]:
        """Return how far each file of an attempt was recorded [bytes]."""
        rows = self._rows(
            "SELECT name, next_offset FROM stream WHERE launch_id = ? AND attempt = ?",
            launch_id,
            attempt,
        )
        return {row["name"]: int(row["next_offset"]) for row in rows}

    def lines(self, launch_id: str, attempt: int, name: str) -> list[str]:
        """Return the recorded lines of one file of an attempt, in order."""
        rows = self._rows(
            "SELECT text FROM line WHERE launch_id = ? AND attempt = ? AND name = ? ORDER BY n",
            launch_id,
            attempt,
            name,
        )
        return [str(row["text"]) for row in rows]

    def seen_lines(self, launch_id: str, attempt: int, name: str) -> list[tuple[str, str]]:
        """Return the recorded lines of one file with the controller's time of reading, UTC."""
        rows = self._rows(
            "SELECT text, seen_utc FROM line WHERE launch_id = ? AND attempt = ? AND name = ? "
            "ORDER BY n",
            launch_id,
            attempt,
            name,
        )
        return [(str(row["text"]), str(row["seen_utc"])) for row in rows]

    def experiment(self) -> Experiment:
        """Return the experiment of the current plan."""
        text = self.meta("experiment")
        if text is None:
            raise StoreError(
                f"{self.path} holds no plan", hint="submit the experiment again with --new"
            )
        return plan_json.decode_experiment(text)

    def plan(self) -> Plan:
        """Return the current plan."""
        workloads = {
            row["workload_id"]: plan_json.decode_workload(row["document"])
            for row in self._rows("SELECT * FROM workload")
        }
        launches = tuple(
            plan_json.decode_launch(row["document"], workloads)
            for row in self._rows("SELECT document FROM launch WHERE in_plan = 1 ORDER BY position")
        )
        skipped = tuple(
            plan_json.decode_skipped(row["document"])
            for row in self._rows("SELECT document FROM skipped ORDER BY position")
        )
        return Plan(launches=launches, skipped=skipped, excluded=int(self.meta("excluded") or 0))

    def launch_states(self) -> dict[str, tuple[LaunchState, Failure | None]]:
        """Return the state of every launch of the current plan, in plan order."""
        rows = self._rows("SELECT * FROM launch WHERE in_plan = 1 ORDER BY position")
        return {
            row["launch_id"]: (
                LaunchState(row["state"]),
                _failure(row["failure_class"], row["message"]),
            )
            for row in rows
        }

    def trial_states(self) -> dict[str, tuple[TrialState, Failure | None, int | None]]:
        """Return state, failure and the counting attempt of every trial of the current plan."""
        rows = self._rows("SELECT * FROM trial WHERE in_plan = 1")
        return {
            row["trial_id"]: (
                TrialState(row["state"]),
                _failure(row["failure_class"], row["message"]),
                row["attempt"],
            )
            for row in rows
        }

    def attempts(self) -> list[AttemptRow]:
        """Return every attempt of the sweep, oldest first, dropped launches included."""
        rows = self._rows("SELECT * FROM attempt ORDER BY intent_utc, launch_id, attempt")
        return [
            AttemptRow(
                launch_id=row["launch_id"],
                attempt=row["attempt"],
                run=row["run"],
                node=row["node"],
                directory=row["directory"],
                nonce=row["nonce"],
                trial_ids=tuple(json.loads(row["trial_ids"])),
                intent_utc=row["intent_utc"],
                state=LaunchState(row["state"]),
                failure=_failure(row["failure_class"], row["message"]),
                outcome=row["outcome"],
                fetched=row["fetched"],
            )
            for row in rows
        ]

    def runs(self) -> list[RunRow]:
        """Return every driver process of the sweep, oldest first."""
        return [RunRow(**dict(row)) for row in self._rows("SELECT * FROM run ORDER BY run")]
