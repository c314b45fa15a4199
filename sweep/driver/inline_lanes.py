"""Lanes in this process, stepped by `poll`: to stop what runs on a node without starting Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sweep.driver.lane import Lane, LaneEvent, LaunchTask
from sweep.driver.lanes import Fetched, FetchTask, LaneFailed, LanesEvent
from sweep.model.errors import SweepError
from sweep.ports import Clock, Node


class InlineLanes:
    """Implements driver.lanes.Lanes; each `poll` takes one event of each lane."""

    def __init__(self, nodes: Mapping[str, Node], clock: Clock) -> None:
        self._lanes = {name: Lane(node, clock) for name, node in nodes.items()}
        self._running: dict[str, Iterator[LaneEvent]] = {}
        self._done: list[tuple[str, LanesEvent]] = []

    def start(self, node: str, task: LaunchTask) -> None:
        """Bring an attempt to an idle lane."""
        self._running[node] = self._lanes[node].run(task)

    def fetch(self, node: str, task: FetchTask) -> None:
        """Fetch at once; the next `poll` tells."""
        try:
            self._lanes[node].fetch(task.directory, task.target, keep=task.keep)
        except SweepError as error:
            self._done.append((node, Fetched(task, error.message)))
        else:
            self._done.append((node, Fetched(task, None)))

    def poll(self, timeout_s: float) -> Sequence[tuple[str, LanesEvent]]:  # noqa: ARG002
        """Return what happened; waits as long as a lane's next event takes."""
        events, self._done = self._done, []
        for name, stream in list(self._running.items()):
            try:
                events.append((name, next(stream)))
            except StopIteration:
                del self._running[name]
            except SweepError as error:
                del self._running[name]
                events.append((name, LaneFailed(error.message, error.hint)))
        return events

    def cancel(self) -> None:
        """Stop every launch that runs or is started from now on."""
        for lane in self._lanes.values():
            lane.cancel()

    def close(self) -> None:
        """Nothing is held."""
