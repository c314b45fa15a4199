"""What counts as a server's progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.agent.procs import Process
from sweep.agent.watch import Vitals, is_compiling, progressed

BEFORE = Vitals(
    at_s=100.0,
    log_bytes=500,
    cpu_s={7: 10.0},
    disk_bytes={7: 1000},
    compiling=False,
    gpu_memory_mib=4000.0,
    gpu_busy=False,
)
NOW = replace(BEFORE, at_s=101.0)
SPINNING = replace(NOW, cpu_s={7: 11.0})


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (NOW, False),
        (replace(NOW, log_bytes=501), True),
        (replace(NOW, cpu_s={7: 10.01}), False),
        (SPINNING, True),
        (replace(NOW, cpu_s={7: 10.0, 8: 0.5}), True),
        (replace(NOW, cpu_s={}), False),
        (replace(NOW, disk_bytes={7: 2000}), False),
        (replace(NOW, disk_bytes={7: 10_000_000}), True),
        (replace(NOW, gpu_memory_mib=4100.0), True),
        (replace(NOW, gpu_memory_mib=None), False),
        (replace(NOW, compiling=True), True),
        (replace(SPINNING, gpu_busy=True), False),
        (replace(SPINNING, gpu_busy=True, gpu_memory_mib=4100.0), True),
        (replace(SPINNING, gpu_busy=True, log_bytes=501), True),
    ],
)
def test_progress(now: Vitals, expected: bool) -> None:
    """Log, memory, work and compilers are progress; polling and spinning are not."""
    assert progressed(BEFORE, now) is expected


def test_a_compiler_among_our_processes() -> None:
    """It is told by its name."""
    python = Process(7, 1, 1, 1, "S", 5, 0, "python3")
    assert not is_compiling([python])
    assert is_compiling([python, replace(python, pid=8, name="cicc")])
