"""Sweep directories: names, locks, and how they are found when some are broken."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sweep.model.errors import SweepLockedError, UnusableError, UsageError
from sweep.store.directory import (
    FoundSweep,
    SweepLock,
    check_results_directory,
    choose_sweep,
    find_sweeps,
    new_sweep_id,
)
from sweep.store.sweep_db import DB_FILE, SweepDb

LOCAL: Mapping[str, Any] = {
    "network": False,
    "file_system": "ext4",
    "free_bytes": 2**30,
}


def make(results: Path, sweep_id: str, created_utc: str) -> Path:
    """Make a sweep's directory with an empty database."""
    directory = results / sweep_id
    directory.mkdir(parents=True)
    SweepDb.create(directory, sweep_id, sweep_id.split("-", maxsplit=1)[0], created_utc).close()
    return directory


def test_an_id_tells_name_and_time() -> None:
    """<name>-<UTC>-<4 hex>, and no two alike."""
    ids = {new_sweep_id("quick-start", "2026-01-02T03:04:05.678Z") for _ in range(20)}
    assert len(ids) > 1
    assert all(each.startswith("quick-start-20260102T030405-") for each in ids)


def test_sweeps_are_found_oldest_first(tmp_path: Path) -> None:
    """Order is by creation, not by name; other directories do not count."""
    make(tmp_path, "b", "2026-01-01T00:00:00.000Z")
    make(tmp_path, "a", "2026-01-02T00:00:00.000Z")
    (tmp_path / "unrelated").mkdir()
    assert [sweep.sweep_id for sweep in find_sweeps(tmp_path)] == ["b", "a"]
    assert find_sweeps(tmp_path / "missing") == []


def test_a_broken_sweep_hides_no_other(tmp_path: Path) -> None:
    """A damaged database is listed with its problem, at its place by its id."""
    make(tmp_path, "a-20260101T000000-0000", "2026-01-01T00:00:00.000Z")
    make(tmp_path, "c-20260103T000000-0000", "2026-01-03T00:00:00.000Z")
    broken = make(tmp_path, "b-x-20260102T030405-00ff", "2026-01-02T00:00:00.000Z")
    (broken / DB_FILE).write_bytes(b"garbage" * 1000)
    found = find_sweeps(tmp_path)
    assert [sweep.sweep_id[0] for sweep in found] == ["a", "b", "c"]
    assert [sweep.problem is None for sweep in found] == [True, False, True]
    assert (found[1].name, found[1].created_utc) == ("b-x", "2026-01-02T03:04:05.000Z")


def test_a_sweep_is_chosen_by_id_or_unique_prefix() -> None:
    """An exact id wins over those that begin so; several are named; none is said."""
    sweeps = [FoundSweep(name, name, Path(name), "") for name in ("ab", "abc", "abd")]
    assert choose_sweep(sweeps, "ab").sweep_id == "ab"
    assert choose_sweep(sweeps, "abc").sweep_id == "abc"
    with pytest.raises(UsageError, match="fits 3 sweeps: ab, abc, abd"):
        choose_sweep(sweeps, "a")
    with pytest.raises(UsageError, match="no sweep 'x'"):
        choose_sweep(sweeps, "x")


def test_a_name_wins_over_a_longer_one_that_begins_so() -> None:
    """`two` is no part of `two-rehearsal`; two sweeps of one name are told apart by their ids."""
    ids = ("two-1", "two-rehearsal-2", "again-3", "again-4", "again-more-5")
    sweeps = [FoundSweep(each, each.rpartition("-")[0], Path(each), "") for each in ids]
    assert choose_sweep(sweeps, "two").sweep_id == "two-1"
    assert choose_sweep(sweeps, "two-r").sweep_id == "two-rehearsal-2"
    with pytest.raises(UsageError, match=r"fits 2 sweeps: again-3, again-4$"):
        choose_sweep(sweeps, "again")


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    """Whoever comes second is told who drives, and how to follow or stop it; one
    that was asked to stop need not be asked again."""
    lock = SweepLock.take(tmp_path)
    lock.name_holder("driver pid 4711 on gpu-a")
    with pytest.raises(SweepLockedError, match="run by driver pid 4711 on gpu-a") as raised:
        SweepLock.take(tmp_path)
    assert "sweep cancel" in str(raised.value.hint)
    lock.name_holder("driver pid 4711 on gpu-a", stopping=True)
    with pytest.raises(SweepLockedError, match=r"4711 on gpu-a, which is stopping$") as raised:
        SweepLock.take(tmp_path)
    assert str(raised.value.hint).startswith("wait until it has ended")
    assert "cancel" not in str(raised.value.hint)
    lock.release()
    SweepLock.take(tmp_path).release()


def test_an_earlier_holder_is_not_named(tmp_path: Path) -> None:
    """The name of a driver that is gone is not that of the one that just begins."""
    lock = SweepLock.take(tmp_path)
    lock.name_holder("driver pid 4711")
    lock.release()
    lock = SweepLock.take(tmp_path)
    with pytest.raises(SweepLockedError, match="run by another process"):
        SweepLock.take(tmp_path)
    lock.release()


def test_a_lock_ends_with_the_last_process_that_has_it(tmp_path: Path) -> None:
    """Handed to a child, the lock outlives its taker and ends with the child."""
    lock = SweepLock.take(tmp_path)
    argv = ["sleep", "60"]
    with subprocess.Popen(argv, pass_fds=[lock.descriptor]) as child:
        lock.release()
        with pytest.raises(SweepLockedError):
            SweepLock.take(tmp_path)
        child.kill()
        child.wait()
    SweepLock.take(tmp_path).release()


def test_a_lock_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    """A directory that was deleted is unusable, not locked."""
    with pytest.raises(UnusableError, match="cannot open"):
        SweepLock.take(tmp_path / "gone")


def test_a_results_directory_is_made_and_left_clean(tmp_path: Path) -> None:
    """The check makes the directory and leaves nothing in it."""
    results = tmp_path / "new" / "results"
    check_results_directory(results, LOCAL)
    assert list(results.iterdir()) == []


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    """The database is not safe there: nothing is made, and the type is named."""
    with pytest.raises(UnusableError, match=r"network file system \(nfs4\)"):
        check_results_directory(tmp_path / "r", {**LOCAL, "network": True, "file_system": "nfs4"})
    assert not (tmp_path / "r").exists()


def test_a_nearly_full_disk_is_refused(tmp_path: Path) -> None:
    """A sweep that could not even write its database is not begun."""
    with pytest.raises(UnusableError, match="has 3 MiB free, a sweep needs at least 64 MiB"):
        check_results_directory(tmp_path / "r", {**LOCAL, "free_bytes": 3 * 2**20})
    assert not (tmp_path / "r").exists()


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    """A results directory that cannot be made is told with what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableError, match="cannot be written: Not a directory") as raised:
        check_results_directory(tmp_path / "file" / "results", LOCAL)
    assert "--results" in str(raised.value.hint)


def test_a_results_directory_may_be_looked_at_without_making_it(tmp_path: Path) -> None:
    """What would be written to is tried, and left as it was."""
    check_results_directory(tmp_path / "a" / "b", LOCAL, make=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableError, match="file/r cannot be written: File exists"):
        check_results_directory(tmp_path / "file" / "r", LOCAL, make=False)


def test_a_results_directory_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    """It is told instead of "no sweeps"."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableError, match="cannot be read: Not a directory"):
        find_sweeps(tmp_path / "file")
