"""All lanes of a sweep, as its loop sees them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sweep.driver.lane import Lane, LaneEvent, LaunchTask
from sweep.model.errors import SweepError


@dataclass(frozen=True)
class LaneLost:
    """The process of a lane died or froze and was replaced. The launch on the node goes on:
    start the same attempt again to attach to it."""

    reason: str


@dataclass(frozen=True)
class LaneFailed:
    """The node refused or could not be reached; the attempt's fate is not known."""

    message: str
    hint: str | None


@dataclass(frozen=True)
class FetchTask:
    """An ended attempt whose files are wanted in the local directory `target`."""

    launch_id: str
    attempt: int
    directory: str
    target: str
    keep: bool


@dataclass(frozen=True)
class Fetched:
    """A fetch ended; error None: the files are in the task's target."""

    task: FetchTask
    error: str | None


LanesEvent = LaneEvent | LaneLost | LaneFailed | Fetched


class Lanes(Protocol):
    """One lane per node, named by the node."""

    def start(self, node: str, task: LaunchTask) -> None:
        """Bring an attempt to an idle lane."""
        ...

    def fetch(self, node: str, task: FetchTask) -> None:
        """Fetch an attempt's files while the lane may run the next."""
        ...

    def poll(self, timeout_s: float) -> Sequence[tuple[str, LanesEvent]]:
        """Wait at most `timeout_s` for something to happen and return it, oldest first."""
        ...

    def cancel(self) -> None:
        """Stop every launch that runs, and every one that is started afterwards."""
        ...

    def close(self) -> None:
        """End the lanes. Launches that still run on nodes go on there."""
        ...


def guarded(lane: Lane, task: LaunchTask) -> Iterator[LaneEvent | LaneFailed]:
    """Yield what a lane reads; what goes wrong is the last event."""
    try:
        yield from lane.run(task)
    except SweepError as error:
        yield LaneFailed(error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - else the driver takes it for a dead lane
        text = "".join(traceback.format_exception(error))
        yield LaneFailed(f"internal error in the lane: {text}", None)


def fetched(lane: Lane, task: FetchTask) -> Fetched:
    """Fetch an ended attempt's files, and say how that went."""
    try:
        lane.fetch(task.directory, task.target, keep=task.keep)
    except Exception as error:  # noqa: BLE001 - whatever it is, the record stands without the files
        return Fetched(task, str(error) or type(error).__name__)
    return Fetched(task, None)
