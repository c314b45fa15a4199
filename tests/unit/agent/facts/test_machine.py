"""Memory, limits and ports of this machine."""

from __future__ import annotations

import resource
import time

from sweep.agent.facts import machine


def test_the_machine_of_the_tests() -> None:
    """Figures are in bytes, and those that the kernel tells."""
    found = machine.inspect()
    assert 2**28 < found["memory_available_bytes"] <= found["memory_bytes"]
    assert found["shm_free_bytes"] <= found["shm_bytes"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found["open_files"] == (soft, hard)
    assert found["port_error"] is None
    assert abs(found["utc_s"] - time.time()) < 10
