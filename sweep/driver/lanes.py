"""All lanes of a sweep, as its loop sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sweep.driver.lane import LaneEvent, LaunchTask


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
