"""A sweep driven by one process without Ray, which can kill itself at any recorded boundary."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from fakes.inline_lanes import InlineLanes

from sweep import app
from sweep.agent import wire
from sweep.driver.lane import Attached, LaunchTask, Lines
from sweep.driver.lanes import Fetched, FetchTask, LanesEvent
from sweep.driver.process import Drive, StopSignals
from sweep.model.errors import SweepError
from sweep.nodes.ssh import SshNode
from sweep.nodes.ssh_link import Deadlines
from sweep.ports import Clock, Node

INTENT, ATTACHED, ENDED, FETCHED = "intent", "attached", "ended", "fetched"


@dataclass(frozen=True)
class Inline:
    """One run: `submit FILE [--new]` or `resume`, in the environment of a user."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    results: str
    kill_at: tuple[str, str] | None
    keep_going: bool
    hurried: bool
    """Whether a lost link counts as lost after 0.6 s, and a call gives it up 1 s later."""


def boundaries(events: int) -> list[str]:
    """Name every recorded boundary of an attempt with so many events, in order."""
    return [INTENT, ATTACHED, *(f"event {n}" for n in range(events)), ENDED, FETCHED]


def split(event: LanesEvent) -> Iterator[LanesEvent]:
    """Yield lines one by one, each with its own offsets; another event as it is."""
    if not isinstance(event, Lines):
        yield event
        return
    offset = event.offset
    for line in event.lines:
        end = offset + len(line.encode()) + 1
        yield Lines(event.name, offset, (line,), end)
        offset = end


class SteppingLanes:
    """Hands on one line at a time, and dies by SIGKILL once a boundary was recorded."""

    def __init__(self, inner: InlineLanes, kill_at: tuple[str, str] | None) -> None:
        self._inner = inner
        self._kill_at = kill_at
        self._launch = ""
        self._handed = ("", "")
        self._waiting: deque[tuple[str, LanesEvent]] = deque()

    def _reached(self, launch: str, name: str) -> None:
        if self._kill_at == (launch, name):
            os.kill(os.getpid(), signal.SIGKILL)

    def start(self, node: str, task: LaunchTask) -> None:
        """The intent is recorded, and nothing was sent to the node."""
        self._launch = task.launch_id
        self._reached(task.launch_id, INTENT)
        self._inner.start(node, task)

    def fetch(self, node: str, task: FetchTask) -> None:
        """The end is recorded."""
        self._reached(task.launch_id, ENDED)
        self._inner.fetch(node, task)

    def poll(self, timeout_s: float) -> Sequence[tuple[str, LanesEvent]]:
        """Return one event; the one before was recorded by now."""
        self._reached(*self._handed)
        self._handed = ("", "")
        if not self._waiting:
            for node, event in self._inner.poll(timeout_s):
                self._waiting.extend((node, part) for part in split(event))
        if not self._waiting:
            return []
        node, event = self._waiting.popleft()
        if isinstance(event, Fetched):
            self._handed = (event.task.launch_id, FETCHED)
        elif isinstance(event, Attached):
            self._handed = (self._launch, ATTACHED)
        elif isinstance(event, Lines) and event.name == wire.EVENTS_FILE:
            self._handed = (self._launch, f"event {json.loads(event.lines[0])['n']}")
        return [(node, event)]

    def cancel(self) -> None:
        """As the lanes do."""
        self._inner.cancel()

    def close(self) -> None:
        """As the lanes do."""
        self._inner.close()


def run_inline(task: Inline) -> None:
    """Run to the end in this process, and exit as `sweep` does."""
    os.environ.clear()
    os.environ.update(task.environment)
    with (Path(task.results).parent / "inline.log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        prepared = _prepare(task)
        signals = StopSignals()
        signals.install()

        def lanes(factories: Mapping[str, Callable[[], Node]], clock: Clock) -> SteppingLanes:
            nodes = {name: partial(_node, factory, task) for name, factory in factories.items()}
            return SteppingLanes(InlineLanes(nodes, clock), task.kill_at)

        drive = Drive(
            prepared.directory, prepared.lock, task.environment, keep_going=task.keep_going
        )
        code = drive.to_end(lanes, signals.requested, None)
    except SweepError as error:
        print(error.message, flush=True)
        code = error.exit_code
    sys.exit(code)


def _node(factory: Any, task: Inline) -> Node:
    if not task.hurried:
        return cast("Node", factory())
    deadlines = Deadlines(ping_every_s=0.3, ping_s=0.3)
    return SshNode(*factory.args, **factory.keywords | {"deadlines": deadlines, "patience_s": 1.0})


def _prepare(task: Inline) -> app.Prepared:
    verb, *rest = task.arguments
    results = Path(task.results)
    if verb == "resume":
        return app.prepare_resume(results, None, task.environment)
    loaded = app.load(Path(rest[0]), ())
    planned = app.plan(loaded.experiment, task.environment)
    return app.prepare(loaded, planned, results, new="--new" in rest)
