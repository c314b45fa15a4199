"""What everybody reads from a sweep's database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sweep.model.errors import StoreError
from sweep.model.experiment import Experiment, Workload
from sweep.model.plan import Plan, PlannedLaunch
from sweep.model.states import Failure, LaunchState, TrialState
from sweep.store import plan_json
from sweep.store.connection import Connection


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


@dataclass(frozen=True)
class NodeRow:
    """What a node said when the sweep was planned."""

    engine_version: str | None
    """None: the server's program does not tell."""
    workdir: str
    """The directory on it below which sweeps keep their launch directories."""


def _failure(failure_class: str | None, message: str | None) -> Failure | None:
    return None if failure_class is None else Failure(failure_class, message or "")


class SweepReader:
    """The reading half of SweepDb."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def path(self) -> Path:
        """The database's file."""
        return self._connection.path

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all reads inside see one and the same state."""
        with self._connection.snapshot():
            yield

    def meta(self, key: str) -> str | None:
        """Return one fact of the sweep, None when it was never set."""
        rows = self._connection.rows("SELECT value FROM meta WHERE key = ?", key)
        return str(rows[0]["value"]) if rows else None

    @property
    def sweep_id(self) -> str:
        """The sweep's id, which is also its directory's name."""
        return self.meta("sweep_id") or ""

    def offsets(self, launch_id: str, attempt: int) -> dict[str, int]:
        """Return how far each file of an attempt was recorded [bytes]."""
        rows = self._connection.rows(
            "SELECT name, next_offset FROM stream WHERE launch_id = ? AND attempt = ?",
            launch_id,
            attempt,
        )
        return {row["name"]: int(row["next_offset"]) for row in rows}

    def lines(self, launch_id: str, attempt: int, name: str) -> list[str]:
        """Return the recorded lines of one file of an attempt, in order."""
        rows = self._connection.rows(
            "SELECT text FROM line WHERE launch_id = ? AND attempt = ? AND name = ? ORDER BY n",
            launch_id,
            attempt,
            name,
        )
        return [str(row["text"]) for row in rows]

    def seen_lines(
        self, launch_id: str, attempt: int, name: str, *, ends_only: bool
    ) -> list[tuple[str, str]]:
        """Return the recorded lines of one file, or just the first and the last, with the
        controller's time of reading, UTC."""
        where = "FROM line WHERE launch_id = ?1 AND attempt = ?2 AND name = ?3"
        ends = f" AND n IN (0, (SELECT max(n) {where}))" if ends_only else ""
        statement = f"SELECT text, seen_utc {where}{ends} ORDER BY n"
        rows = self._connection.rows(statement, launch_id, attempt, name)
        return [(str(row["text"]), str(row["seen_utc"])) for row in rows]

    def experiment(self) -> Experiment:
        """Return the experiment of the current plan."""
        text = self.meta("experiment")
        if text is None:
            raise StoreError(
                f"{self.path} holds no plan", hint="submit the experiment again with --new"
            )
        return plan_json.decode_experiment(text)

    def _workloads(self) -> dict[str, Workload]:
        return {
            row["workload_id"]: plan_json.decode_workload(row["document"])
            for row in self._connection.rows("SELECT * FROM workload")
        }

    def plan(self) -> Plan:
        """Return the current plan."""
        workloads = self._workloads()
        launches = tuple(
            plan_json.decode_launch(row["document"], workloads)
            for row in self._connection.rows(
                "SELECT document FROM launch WHERE in_plan = 1 ORDER BY position"
            )
        )
        skipped = tuple(
            plan_json.decode_skipped(row["document"])
            for row in self._connection.rows("SELECT document FROM skipped ORDER BY position")
        )
        return Plan(launches=launches, skipped=skipped, excluded=int(self.meta("excluded") or 0))

    def launch(self, launch_id: str) -> PlannedLaunch:
        """Return a launch by its id, also one that the current plan dropped."""
        rows = self._connection.rows("SELECT document FROM launch WHERE launch_id = ?", launch_id)
        return plan_json.decode_launch(rows[0]["document"], self._workloads())

    def launch_states(self) -> dict[str, tuple[LaunchState, Failure | None]]:
        """Return the state of every launch of the current plan, in plan order."""
        rows = self._connection.rows("SELECT * FROM launch WHERE in_plan = 1 ORDER BY position")
        return {
            row["launch_id"]: (
                LaunchState(row["state"]),
                _failure(row["failure_class"], row["message"]),
            )
            for row in rows
        }

    def trial_states(self) -> dict[str, tuple[TrialState, Failure | None, int | None]]:
        """Return state, failure and the counting attempt of every trial of the current plan."""
        rows = self._connection.rows("SELECT * FROM trial WHERE in_plan = 1")
        return {
            row["trial_id"]: (
                TrialState(row["state"]),
                _failure(row["failure_class"], row["message"]),
                row["attempt"],
            )
            for row in rows
        }

    def nodes(self) -> dict[str, NodeRow]:
        """Return what was known of each node of the current plan when it was made, by name."""
        rows = self._connection.rows("SELECT * FROM node")
        return {row["name"]: NodeRow(row["engine_version"], row["workdir"]) for row in rows}

    def attempts(self) -> list[AttemptRow]:
        """Return every attempt of the sweep, oldest first, dropped launches included."""
        rows = self._connection.rows("SELECT * FROM attempt ORDER BY rowid")
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
        return [
            RunRow(**dict(row)) for row in self._connection.rows("SELECT * FROM run ORDER BY run")
        ]

    def driven_s(self, before_run: int) -> float:
        """Return how long the runs before this one took in sum [s], by this machine's time of
        day; one that was killed lasted until its last record."""
        rows = self._connection.rows(
            "SELECT sum(julianday(coalesce(ended_utc, (SELECT max(seen_utc) FROM line "
            "JOIN attempt USING (launch_id, attempt) WHERE attempt.run = run.run), started_utc)) "
            "- julianday(started_utc)) AS days FROM run WHERE run < ?",
            before_run,
        )
        return float(rows[0]["days"] or 0.0) * 86400.0
