"""The connection to a sweep's database: opening it, transactions, and errors that help."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweep.agent.wire import WIRE_VERSION
from sweep.model.errors import StoreError

DB_FILE = "sweep.db"
SCHEMA_VERSION = f"2.{WIRE_VERSION}"
"""Of the tables, and of the agent's lines and outcomes that they hold as they came."""

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE node (name TEXT PRIMARY KEY, engine_version TEXT, workdir TEXT NOT NULL);
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

_BUSY_TIMEOUT_S = 10.0
_DAMAGED = "the file is damaged: restore it from a copy, or start afresh with `submit --new`"
_HINTS = {
    sqlite3.SQLITE_FULL: "free space on that disk, then `sweep resume`: what was recorded is kept",
    sqlite3.SQLITE_IOERR: "check that disk, then `sweep resume`: what was recorded is kept",
    sqlite3.SQLITE_READONLY: "make the directory writable",
    sqlite3.SQLITE_CANTOPEN: "check that the directory is there and writable",
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}
_PRIMARY_CODE = 0xFF


def _store_error(what: str, path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    return StoreError(f"cannot {what} {path}: {error}", hint=_HINTS.get(code))


class Connection:
    """A database with write-ahead log and synchronous FULL. Raises StoreError where SQLite does."""

    def __init__(self, path: Path, *, create: bool) -> None:
        """Open the file, or make it (mode 0600); one that is not a database is refused."""
        self.path = path
        if create:
            self._touch()
        try:
            self._sqlite = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
            )
        except sqlite3.Error as error:
            raise _store_error("open", path, error) from error
        self._sqlite.row_factory = sqlite3.Row
        try:
            self._sqlite.execute("PRAGMA journal_mode=WAL")
            self._sqlite.execute("PRAGMA synchronous=FULL")
        except sqlite3.Error as error:
            self._sqlite.close()
            raise _store_error("open", path, error) from error

    def _touch(self) -> None:
        """Make the empty file: SQLite gives its mode to the files that it puts beside it."""
        try:
            self.path.touch(mode=0o600, exist_ok=False)
        except OSError as error:
            raise StoreError(f"cannot make {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close it."""
        self._sqlite.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Cursor]:
        """Make all statements inside one transaction: all of them are kept, or none."""
        cursor = self._sqlite.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise _store_error("write", self.path, error) from error
        except BaseException:
            self._rollback()
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all reads inside see one and the same state."""
        self.rows("BEGIN")
        try:
            self.rows("SELECT count(*) FROM meta")
            yield
        finally:
            self._rollback()

    def _rollback(self) -> None:
        if self._sqlite.in_transaction:
            self._sqlite.execute("ROLLBACK")

    def rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of one statement."""
        try:
            return self._sqlite.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise _store_error("read", self.path, error) from error
