"""Clocks of the device that decodes.

A host's clock bills asynchronous work to whoever waits for it, and a synchronisation to be sure of
it slows the server down. So marks are put into the device's own stream of work and read when the
device has passed them.
"""

from __future__ import annotations

import time
from typing import Any, List, Protocol


class DeviceClock(Protocol):
    """Marks in a device's stream of work. A mark is read only when it is ready, then released."""

    name: str
    """As in the handshake."""
    anywhere: bool
    """Whether any thread may read marks; else only the one that decodes."""

    def usable(self) -> bool:
        """Whether marks can be recorded now."""
        ...

    def record(self) -> Any:
        """Put a mark behind the work submitted so far, without waiting for it."""
        ...

    def ready(self, mark: Any) -> bool:
        """Whether the device has passed a mark; never waits."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two ready marks on the device [s]."""
        ...

    def release(self, mark: Any) -> None:
        """Take a mark back, to be recorded again."""
        ...


class WallClock:
    """The host's monotonic clock, for devices that have done their work when a call returns."""

    name = "wall"
    anywhere = True

    def usable(self) -> bool:
        """Return True."""
        return True

    record = staticmethod(time.monotonic)
    """Return the time [s]."""

    def ready(self, mark: float) -> bool:  # noqa: ARG002 - the work was done when it was taken
        """Return True."""
        return True

    def seconds(self, start: float, end: float) -> float:
        """Return the difference [s]."""
        return end - start

    def release(self, mark: float) -> None:
        """Nothing to take back."""


class CudaClock:
    """CUDA events on the current stream, which is the one the server computes on.

    Written from CUDA's and torch's documentation and tested against a fake of them: no GPU ran it.
    """

    name = "cuda"
    anywhere = False
    """Another thread that asked for an event could break a graph that is captured meanwhile."""

    def __init__(self, cuda: Any, events: int) -> None:
        """Allocate `events` events; `cuda` is torch.cuda. More are allocated when they run out."""
        self._cuda = cuda
        self._free: List[Any] = [cuda.Event(enable_timing=True) for _ in range(events)]

    def usable(self) -> bool:
        """Whether no graph is being captured: a timing event would fail the capture."""
        return not self._cuda.is_current_stream_capturing()

    def record(self) -> Any:
        """Record an event on the current stream."""
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def ready(self, mark: Any) -> bool:
        """Query the event."""
        return bool(mark.query())

    def seconds(self, start: Any, end: Any) -> float:
        """Return the events' distance; CUDA counts milliseconds, to half a microsecond."""
        return float(start.elapsed_time(end)) / 1000

    def release(self, mark: Any) -> None:
        """Keep the event for reuse."""
        self._free.append(mark)
