"""Clocks of a device."""

from __future__ import annotations

import pytest
from fakes.device import FakeCuda, FakeDevice

from sweep.probe.clocks import CudaClock, WallClock


def test_cuda_events_measure_what_the_device_did() -> None:
    """An event happens when the device comes to it, and is not waited for."""
    device = FakeDevice()
    clock = CudaClock(FakeCuda(device), events=2)
    start = clock.record()
    device.submit(0.02)
    end = clock.record()
    assert not clock.ready(end)
    device.wait()
    assert clock.ready(end)
    assert clock.seconds(start, end) == pytest.approx(0.02, abs=2e-4)


def test_events_are_allocated_once() -> None:
    """Released ones are recorded again; more are made only when all are in use."""
    cuda = FakeCuda(FakeDevice())
    clock = CudaClock(cuda, events=3)
    for _ in range(10):
        marks = [clock.record() for _ in range(3)]
        for mark in marks:
            clock.release(mark)
    assert len(cuda.events) == 3
    assert sum(event.records for event in cuda.events) == 30
    assert len({id(clock.record()) for _ in range(4)}) == len(cuda.events) == 4


def test_no_event_while_a_graph_is_captured() -> None:
    """The clock says that it cannot be used."""
    device = FakeDevice()
    clock = CudaClock(FakeCuda(device), events=1)
    assert clock.usable()
    device.capturing = True
    assert not clock.usable()


def test_the_hosts_clock_is_always_ready() -> None:
    """Its marks are times."""
    clock = WallClock()
    start, end = clock.record(), clock.record()
    assert clock.usable()
    assert clock.ready(end)
    assert clock.seconds(start, end) == end - start >= 0
