"""Lanes in threads of this process: for the seconds that Ray takes to start, and to stop what runs
on nodes without starting Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Thread

from sweep.driver.lane import Ended, Lane, LaneEvent, LaunchTask, Lines
from sweep.driver.lanes import Fetched, FetchTask, LaneFailed, LanesEvent, fetched, guarded
from sweep.ports import Clock, Node

_STEP_S = 0.05


class ThreadLane:
    """Runs one task until it ends or is released to another lane, which then attaches to it."""

    def __init__(self, factory: Callable[[], Node], clock: Clock, task: LaunchTask) -> None:
        self._lane = Lane(factory, clock)
        self._events: SimpleQueue[LaneEvent | LaneFailed] = SimpleQueue()
        self._thread = Thread(target=self._run, args=(task,), name="lane", daemon=True)
        self._over = False
        self.task = task
        """With the offsets up to which events were taken."""
        self._thread.start()

    def _run(self, task: LaunchTask) -> None:
        for event in guarded(self._lane, task):
            self._events.put(event)
        self._lane.close()

    def take(self, timeout_s: float) -> LaneEvent | LaneFailed | None:
        """Return the next event, None when none comes in time."""
        try:
            event = self._events.get(timeout=timeout_s)
        except Empty:
            return None
        if isinstance(event, Lines):
            offsets = {**self.task.offsets, event.name: event.next_offset}
            self.task = replace(self.task, offsets=offsets)
        self._over = self._over or isinstance(event, (Ended, LaneFailed))
        return event

    @property
    def is_over(self) -> bool:
        """Whether its last event was taken."""
        return self._over

    @property
    def is_released(self) -> bool:
        """Whether it was released and every event that it had read was taken."""
        return not self._thread.is_alive() and self._events.empty()

    def cancel(self) -> None:
        """Stop the launch."""
        self._lane.cancel()

    def release(self) -> None:
        """Read no further; the launch goes on."""
        self._lane.release()

    def close(self) -> None:
        """Let go of the node; the launch goes on."""
        self._lane.release()
        self._lane.close()


class ThreadLanes:
    """Implements driver.lanes.Lanes: a thread for each launch, and one for each node's files."""

    def __init__(self, factories: Mapping[str, Callable[[], Node]], clock: Clock) -> None:
        self._factories = dict(factories)
        self._clock = clock
        self._running: dict[str, ThreadLane] = {}
        self._files = {name: Lane(factory, clock) for name, factory in factories.items()}
        self._pool = ThreadPoolExecutor(len(factories), thread_name_prefix="files")
        self._fetches: list[tuple[str, Future[Fetched]]] = []
        self._cancelled = False

    def start(self, node: str, task: LaunchTask) -> None:
        """Bring an attempt to an idle lane."""
        self._running[node] = ThreadLane(self._factories[node], self._clock, task)
        if self._cancelled:
            self._running[node].cancel()

    def fetch(self, node: str, task: FetchTask) -> None:
        """Fetch an attempt's files while the lane may run the next."""
        self._fetches.append((node, self._pool.submit(fetched, self._files[node], task)))

    def poll(self, timeout_s: float) -> Sequence[tuple[str, LanesEvent]]:
        """Wait at most `timeout_s` for something to happen and return it."""
        until_s = time.monotonic() + timeout_s
        while True:
            events = [*self._taken(), *self._fetched()]
            if events or time.monotonic() >= until_s:
                return events
            time.sleep(_STEP_S)

    def _taken(self) -> list[tuple[str, LanesEvent]]:
        events: list[tuple[str, LanesEvent]] = []
        for name, lane in list(self._running.items()):
            while (event := lane.take(0)) is not None:
                events.append((name, event))
            if lane.is_over:
                del self._running[name]
        return events

    def _fetched(self) -> list[tuple[str, LanesEvent]]:
        ended = [(name, future) for name, future in self._fetches if future.done()]
        self._fetches = [each for each in self._fetches if each not in ended]
        return [(name, future.result()) for name, future in ended]

    def cancel(self) -> None:
        """Stop every launch that runs or is started from now on."""
        self._cancelled = True
        for running in self._running.values():
            running.cancel()
        for lane in self._files.values():
            lane.cancel()

    def close(self) -> None:
        """Let go of the nodes. Launches on them go on."""
        for running in self._running.values():
            running.close()
        for lane in self._files.values():
            lane.close()
        self._pool.shutdown()
