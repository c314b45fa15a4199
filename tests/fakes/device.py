"""A device that works asynchronously: the host submits, and the device does it when it gets there.

Time passes only by what is submitted, waited for and slept. FakeCuda shows the device as torch.cuda
does.
"""

from __future__ import annotations

from typing import Any


class Mark:
    """A place in the stream: where, and since when the device has passed it."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s


class FakeDevice:
    """A host and a device; implements sweep.probe's DeviceClock over the device's stream."""

    name = "fake"
    anywhere = False

    def __init__(self, *, synchronous: bool = False) -> None:
        self.host_s = 100.0
        self.free_s = 100.0
        """When the device has done all that was submitted."""
        self.marks = 0
        """Marks that were recorded and not yet released."""
        self.capturing = False
        self.synchronous = synchronous

    def now(self) -> float:
        """The host's monotonic clock."""
        return self.host_s

    def submit(self, work_s: float, launch_s: float = 0.0001) -> None:
        """Launch work that takes the device `work_s`; the host goes on after `launch_s`."""
        self.host_s += launch_s
        self.free_s = max(self.free_s, self.host_s) + work_s
        if self.synchronous:
            self.wait()

    def wait(self) -> None:
        """Synchronise the host with the device."""
        self.host_s = max(self.host_s, self.free_s)

    def sleep(self, seconds: float) -> None:
        """Let the host do something else."""
        self.host_s += seconds

    def usable(self) -> bool:
        """Whether no graph is captured."""
        return not self.capturing

    def record(self) -> Mark:
        """Put a mark behind what was submitted."""
        assert not self.capturing
        self.marks += 1
        return Mark(max(self.free_s, self.host_s))

    def ready(self, mark: Mark) -> bool:
        """Whether the device has come to a mark."""
        return self.host_s >= mark.at_s

    def seconds(self, start: Mark, end: Mark) -> float:
        """Time between marks; reading one too early is a mistake."""
        assert self.ready(start)
        assert self.ready(end)
        return end.at_s - start.at_s

    def release(self, mark: Mark) -> None:
        """Take a mark back."""
        self.marks -= 1
        assert self.marks >= 0


class FakeEvent:
    """torch.cuda.Event."""

    def __init__(self, device: FakeDevice, *, enable_timing: bool) -> None:
        assert enable_timing
        self._device = device
        self._mark: Mark | None = None
        self.records = 0

    def record(self) -> None:
        """Record on the current stream."""
        assert not self._device.capturing, "operation not permitted when stream is capturing"
        self.records += 1
        self._mark = Mark(max(self._device.free_s, self._device.host_s))

    def query(self) -> bool:
        """Whether it has happened."""
        assert self._mark is not None
        return self._device.ready(self._mark)

    def elapsed_time(self, end: FakeEvent) -> float:
        """Milliseconds to another event."""
        assert self._mark is not None
        assert end._mark is not None
        return 1000 * self._device.seconds(self._mark, end._mark)


class FakeCuda:
    """The part of torch.cuda that the probe uses; it has no synchronize."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self.events: list[FakeEvent] = []

    def Event(self, **options: Any) -> FakeEvent:  # noqa: N802 - torch's name
        """Make an event."""
        self.events.append(FakeEvent(self._device, **options))
        return self.events[-1]

    def is_current_stream_capturing(self) -> bool:
        """Whether a graph is captured."""
        return self._device.capturing
