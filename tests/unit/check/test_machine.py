"""Memory, shared memory, ports, limits."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.facts import facts, gpu
from fakes.facts import machine as machine_facts

from sweep.check import machine
from sweep.check.line import CheckLine, Level

MB = 10**6


def about(subject: str, gpus: int = 2, **changes: Any) -> CheckLine:
    """The line about one subject on a machine with these differences."""
    found = facts(*map(gpu, range(gpus)), machine=machine_facts(**changes))
    (line,) = [line for line in machine.lines(found) if line.subject == subject]
    return line


def test_memory() -> None:
    """All of it, what is available, and cores."""
    line = about("memory")
    assert (line.level, line.finding) == (Level.OK, "1.5 TB, 1.4 TB available, 64 cores")
    assert about("memory", memory_available_bytes=None).finding == "1.5 TB, 64 cores"


@pytest.mark.parametrize(
    ("gpus", "changes", "level", "remedy"),
    [
        (2, {}, Level.OK, ""),
        (2, {"shm_bytes": 64 * MB, "shm_free_bytes": 64 * MB}, Level.WARNING, "--shm-size"),
        (1, {"shm_bytes": 64 * MB, "shm_free_bytes": 64 * MB}, Level.OK, ""),
        (2, {"shm_free_bytes": 999 * MB}, Level.WARNING, "ls -l /dev/shm"),
        (2, {"shm_bytes": None}, Level.WARNING, ""),
    ],
)
def test_shared_memory(gpus: int, changes: dict[str, Any], level: Level, remedy: str) -> None:
    """Several GPUs exchange data through it; Docker gives 64 MB."""
    line = about("/dev/shm", gpus, **changes)
    assert line.level is level
    assert remedy in (line.remedy or "")


def test_ports() -> None:
    """A machine whose loopback is down serves nobody."""
    assert about("ports").level is Level.OK
    line = about("ports", port_error="Cannot assign requested address")
    assert line.level is Level.ERROR
    assert "Cannot assign requested address" in line.finding


@pytest.mark.parametrize(
    ("files", "locked", "level", "finding"),
    [
        (
            [1024, 1048576],
            [65536, 65536],
            Level.OK,
            "1024 (at most 1048576), locked memory at most",
        ),
        ([1024, None], [None, None], Level.OK, "(at most unlimited), locked memory unlimited"),
        ([1024, 4096], [None, None], Level.OK, "1024 (at most 4096)"),
        ([1024, 4095], [None, None], Level.WARNING, "1024 (at most 4095)"),
    ],
)
def test_limits(files: Any, locked: Any, level: Level, finding: str) -> None:
    """The hard one counts: servers raise their own."""
    line = about("limits", open_files=files, locked_memory_bytes=locked)
    assert line.level is level
    assert finding in line.finding
