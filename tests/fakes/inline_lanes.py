"""Lanes without threads or Ray, stepped by `poll`: a test decides what happens when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sweep.driver.lane import Lane, LaneEvent, LaunchTask
from sweep.driver.lanes import FetchTask, LaneFailed, LanesEvent, fetched, guarded
from sweep.ports import Clock, Node


class InlineLanes:
    """Implements driver.lanes.Lanes; each `poll` takes one event of each lane."""

    def __init__(self, factories: Mapping[str, Callable[[], Node]], clock: Clock) -> None:
        self._lanes = {name: Lane(factory, clock) for name, factory in factories.items()}
        self._running: dict[str, Iterator[LaneEvent | LaneFailed]] = {}
        self._done: list[tuple[str, LanesEvent]] = []

    def start(self, node: str, task: LaunchTask) -> None:
        """Bring an attempt to an idle lane."""
        self._running[node] = guarded(self._lanes[node], task)

    def fetch(self, node: str, task: FetchTask) -> None:
        """Fetch at once; the next `poll` tells."""
        self._done.append((node, fetched(self._lanes[node], task)))

    def poll(self, timeout_s: float) -> Sequence[tuple[str, LanesEvent]]:
        """Return what happened; waits as long as a lane's next event takes."""
        events, self._done = self._done, []
        for name, stream in list(self._running.items()):
            try:
                events.append((name, next(stream)))
            except StopIteration:
                del self._running[name]
        return events

    def cancel(self) -> None:
        """Stop every launch that runs or is started from now on."""
        for lane in self._lanes.values():
            lane.cancel()

    def close(self) -> None:
        """Let go of the nodes."""
        for lane in self._lanes.values():
            lane.close()
