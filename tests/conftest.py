"""What tests of real processes need; nothing of it outlives a test, however that ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.launching import Bench
from fakes.machine import Machine
from hypothesis import HealthCheck, settings

# How fast an example runs says something of the machine, not of the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
# A shell starts what is in the background with SIGINT ignored, and its children's children too:
# a Ctrl-C that is sent to one of them must arrive all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine for sweeps."""
    machine = Machine(tmp_path)
    try:
        yield machine
    finally:
        machine.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A place for launches by the agent alone."""
    bench = Bench(tmp_path)
    yield bench
    bench.close()
