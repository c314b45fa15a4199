"""Disks: reading the model within the deadline, and room to write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.facts import DISK, GIB, facts, machine, model, storage

from sweep.check.line import CheckLine, Level
from sweep.check.storage import expected_load, lines, reading
from sweep.ports import Installation

INSTALLED = Installation(("m", "d1", "d2"))
MODELS = {
    "m": model(),
    "d1": model(size_bytes=1 * 10**9),
    "d2": model(size_bytes=5 * 10**9),
}
LOAD_S = 1800.0


def about(subject: str, load_s: float = LOAD_S, **changes: Any) -> list[CheckLine]:
    """The lines about one subject."""
    found = facts(**{"models": MODELS, "storage": storage(), **changes})
    return [line for line in lines(found, INSTALLED, load_s) if line.subject == subject]


def test_a_fast_disk() -> None:
    """600 GB, the larger drafter included, at 2 GB/s are 300 s."""
    (line,) = about("load time")
    assert line.level is Level.OK
    assert line.finding == (
        "600 GB at 2 GB/s (ext4 on /dev/sda1): 5 min of a load is reading, timeouts.load is "
        "30 min; memory (1.5 TB) can hold it for the next load"
    )


@pytest.mark.parametrize(
    ("bytes_per_s", "level"),
    [(0.7e9, Level.OK), (0.6e9, Level.WARNING), (0.34e9, Level.WARNING), (0.33e9, Level.ERROR)],
)
def test_slow_storage(bytes_per_s: float, level: Level) -> None:
    """A warning above half of the deadline, an error above all of it."""
    (line,) = about("load time", storage=storage(bytes_per_s=bytes_per_s))
    assert line.level is level
    assert (line.remedy is None) == (level is Level.OK)


def test_what_is_in_the_page_cache_is_not_read() -> None:
    """Three quarters of it are there at the moment."""
    cached = storage(bytes_per_s=0.2e9, cached_share=0.75)
    (line,) = about("load time", storage=cached)
    assert line.level is Level.OK
    assert "75% of it in the page cache now: 12 min of a load is reading" in line.finding


def test_memory_that_cannot_hold_the_model() -> None:
    """Every load reads all of it again."""
    (line,) = about("load time", machine=machine(memory_bytes=500 * 10**9))
    assert "memory (500 GB) cannot hold it: every load reads it again" in line.finding


@pytest.mark.parametrize(
    ("share", "finding"),
    [
        (1.0, "it is in the page cache, so the disk was not timed"),
        (None, "too little to time"),
    ],
)
def test_a_disk_that_was_not_timed(share: float | None, finding: str) -> None:
    """No speed is no claim."""
    (line,) = about("load time", storage=storage(bytes_per_s=None, cached_share=share))
    assert line.level is Level.OK
    assert line.finding.endswith(finding)


def test_without_all_models_nothing_is_expected() -> None:
    """The size of a part would mislead."""
    models = {**MODELS, "m": model(path=None, size_bytes=0)}
    assert about("load time", models=models) == []
    assert about("load time", models=None) == []
    assert about("load time", storage=None) == []


def test_the_expected_load_of_a_plan() -> None:
    """As long as reading takes, never less than the reference's pace; 900 s for no files."""
    slow = facts(models=MODELS, storage=storage(bytes_per_s=0.3e9))
    assert expected_load(slow, INSTALLED).seconds == pytest.approx(2000)
    assert expected_load(slow, INSTALLED).basis == "reading at 300 MB/s"
    fast = facts(models=MODELS, storage=storage())
    assert expected_load(fast, INSTALLED).seconds == pytest.approx(1000)
    assert expected_load(fast, INSTALLED).basis == "assumed"
    assert expected_load(facts(), Installation()).seconds == 900
    starting = replace(INSTALLED, start_s=20.0)
    assert expected_load(slow, starting).seconds == pytest.approx(2020)
    assert expected_load(fast, starting).seconds == pytest.approx(1000)  # it is a start's as well
    assert expected_load(facts(files=("a",)), Installation(start_s=20.0)).seconds == 20
    assert expected_load(facts(), Installation(load_s=3.0)).seconds == 3
    files = facts(files=("a", "b"))
    assert expected_load(files, Installation()).seconds == pytest.approx(2 / 0.6e9)
    assert reading(files, Installation()) is None


def test_room_for_launches() -> None:
    """Where they write, and how much is left."""
    (line,) = about("disk")
    assert (line.level, line.finding) == (Level.OK, "launches write to /w (ext4, 1 TB free)")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"writable": False}, "/w cannot be written"),
        ({"network": True, "file_system": "nfs4"}, "/w is on a network file system (nfs4)"),
        ({"free_bytes": GIB // 4 - 1}, "/w has 268 MB free"),
    ],
)
def test_a_disk_that_launches_cannot_use(change: dict[str, Any], finding: str) -> None:
    """Each is an error with its remedy."""
    (line,) = about("disk", workdir={**DISK, **change})
    assert (line.level, line.finding) == (Level.ERROR, finding)
    assert "node.workdir" in (line.remedy or "")


def test_a_disk_that_does_not_tell_its_room() -> None:
    """Nothing is said of it."""
    (line,) = about("disk", workdir={**DISK, "free_bytes": None})
    assert line.finding == "launches write to /w (ext4)"
    assert about("disk", workdir=None) == []
