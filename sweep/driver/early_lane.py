"""A lane in a thread of the driver, for the seconds that Ray takes to start."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Thread

from sweep.driver.lane import Ended, Lane, LaneEvent, LaunchTask, Lines
from sweep.driver.lanes import LaneFailed
from sweep.model.errors import SweepError
from sweep.ports import Clock, Node


def guarded(lane: Lane, task: LaunchTask) -> Iterator[LaneEvent | LaneFailed]:
    """Yield what a lane reads; what goes wrong is the last event."""
    try:
        yield from lane.run(task)
    except SweepError as error:
        yield LaneFailed(error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - else the driver takes it for a dead lane
        text = "".join(traceback.format_exception(error))
        yield LaneFailed(f"internal error in the lane: {text}", None)


class EarlyLane:
    """Runs one task until it ends or is released to another lane, which then attaches to it."""

    def __init__(self, node: Node, clock: Clock, task: LaunchTask) -> None:
        self._node = node
        self._lane = Lane(node, clock)
        self._events: SimpleQueue[LaneEvent | LaneFailed] = SimpleQueue()
        self._thread = Thread(target=self._run, args=(task,), name="early lane", daemon=True)
        self._over = False
        self.task = task
        """With the offsets up to which events were taken."""
        self._thread.start()

    def _run(self, task: LaunchTask) -> None:
        for event in guarded(self._lane, task):
            self._events.put(event)
        self._node.close()

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
