"""The sweep directory: its name, its lock, and how it is found again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.model.errors import StoreError, SweepLockedError, UnusableError, UsageError
from sweep.store.sweep_db import DB_FILE, SweepDb

EXPERIMENT_FILE = "experiment.yaml"
DRIVER_LOG = "driver.log"
LOCK_FILE = "lock"
LAUNCHES_DIR = "launches"
_STOPPING = ", which is stopping"

_LEAST_FREE_BYTES = 64 * 2**20
"""Database, report and the fetched logs of a small sweep."""

_SWEEP_ID = re.compile(r"(?P<name>.+)-(?P<day>\d{8})T(?P<time>\d{6})-[0-9a-f]{4}")


def check_results_directory(results: Path, disk: Mapping[str, Any], *, make: bool = True) -> None:
    """Make sure that sweeps can be kept below `results`, whose `disk_facts` are given; raises
    UnusableError. Without `make`, a directory that is not there is not made."""
    if disk["network"]:
        raise UnusableError(
            f"results directory {results} is on a network file system ({disk['file_system']}), "
            "where the database of a sweep is not safe",
            hint="give a directory on a local disk with --results DIR or SWEEP_RESULTS",
        )
    free = disk["free_bytes"]
    if free is not None and free < _LEAST_FREE_BYTES:
        raise UnusableError(
            f"results directory {results} has {free // 2**20} MiB free, a sweep needs at least "
            f"{_LEAST_FREE_BYTES // 2**20} MiB",
            hint="free space there, or give another directory with --results DIR or SWEEP_RESULTS",
        )
    if make:
        _try_writing(results, results)
    else:
        existing = next(path for path in (results, *results.absolute().parents) if path.exists())
        _try_writing(results, existing)


def _try_writing(results: Path, directory: Path) -> None:
    probe = directory / f".writable-{secrets.token_hex(4)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with probe.open("wb") as stream:
            stream.write(b"\0" * 65536)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise UnusableError(
            f"results directory {results} cannot be written: {error.strerror or error}",
            hint="free space there, or give another directory with --results DIR or SWEEP_RESULTS",
        ) from error
    finally:
        with contextlib.suppress(OSError):  # the error that matters is already on its way
            probe.unlink(missing_ok=True)


def new_sweep_id(name: str, utc: str) -> str:
    """Return `<name>-<UTC>-<4 hex>` for a sweep that starts at `utc` (ISO 8601)."""
    stamp = utc[:19].replace("-", "").replace(":", "")
    return f"{name}-{stamp}-{secrets.token_hex(2)}"


class SweepLock:
    """The exclusive lock on a sweep directory; its descriptor can be handed to the driver."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, directory: Path) -> SweepLock:
        """Take the lock or raise SweepLockedError naming the driver that holds it."""
        path = directory / LOCK_FILE
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnusableError(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise _locked(directory.name, *told.partition(_STOPPING)[:2]) from None
        os.ftruncate(descriptor, 0)  # an earlier holder's name
        return cls(descriptor)

    def name_holder(self, text: str, *, stopping: bool = False) -> None:
        """Write who holds the lock, for the message that others get, and whether it was asked to
        stop already."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{text}{_STOPPING if stopping else ''}".encode(), 0)

    def release(self) -> None:
        """Let go; the file stays."""
        os.close(self.descriptor)


def _locked(sweep_id: str, holder: str, stopping: str) -> SweepLockedError:
    follow = f"`sweep status --watch {sweep_id}`"
    hint = f"follow it with {follow}, or stop it with `sweep cancel {sweep_id}`"
    if stopping:
        hint = (
            f"wait until it has ended, {follow} follows it: that takes minutes at most, also when "
            "a node does not answer; then try again"
        )
    return SweepLockedError(
        f"sweep {sweep_id} is run by {holder or 'another process'}{stopping}", hint=hint
    )


@dataclass(frozen=True)
class FoundSweep:
    """A sweep directory below the results directory.

    `problem` set: its database cannot be read, and name and time are those of the directory.
    """

    sweep_id: str
    name: str
    directory: Path
    created_utc: str
    problem: str | None = None


def find_sweeps(results: Path) -> list[FoundSweep]:
    """Return every sweep below `results`, oldest first, those that cannot be read included.

    Raises UnusableError when the directory is there and cannot be read.
    """
    try:
        directories = list(results.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnusableError(
            f"results directory {results} cannot be read: {error.strerror}",
            hint="give another directory with --results DIR or SWEEP_RESULTS",
        ) from error
    found = [_found(directory) for directory in directories if (directory / DB_FILE).exists()]
    return sorted(found, key=lambda sweep: (sweep.created_utc, sweep.sweep_id))


def _found(directory: Path) -> FoundSweep:
    try:
        database = SweepDb.open(directory)
        try:
            name, created = database.meta("name") or "", database.meta("created_utc") or ""
        finally:
            database.close()
    except StoreError as error:
        name, created = _from_id(directory.name)
        return FoundSweep(directory.name, name, directory, created, error.message)
    return FoundSweep(directory.name, name, directory, created)


def _from_id(sweep_id: str) -> tuple[str, str]:
    """Return name and time of creation (ISO 8601) that an id of `new_sweep_id` tells."""
    match = _SWEEP_ID.fullmatch(sweep_id)
    if match is None:
        return sweep_id, ""
    day, time = match["day"], match["time"]
    clock = f"{time[:2]}:{time[2:4]}:{time[4:]}"
    return match["name"], f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock}.000Z"


def choose_sweep(sweeps: Sequence[FoundSweep], text: str) -> FoundSweep:
    """Return the only sweep with this id, else with this name, else whose id begins so; raises
    UsageError."""
    matches = (
        [sweep for sweep in sweeps if sweep.sweep_id == text]
        or [sweep for sweep in sweeps if sweep.name == text]
        or [sweep for sweep in sweeps if sweep.sweep_id.startswith(text)]
    )
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(sweep.sweep_id for sweep in matches)
        raise UsageError(
            f"{text!r} fits {len(matches)} sweeps: {names}", hint="type more of the id"
        )
    raise UsageError(f"no sweep {text!r}", hint="`sweep list` shows the sweeps there are")
