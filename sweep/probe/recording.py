"""From marks and calls to one row per decode cycle: what of the probe knows time, and no engine.

A cycle has four marks on the device: at its entry, after drafting, after verification, after the
draft's extension; it lasts until the next cycle's entry. Marks are read cycles later, results join
in the order of their cycles.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Deque, FrozenSet, List, Optional, Protocol, Tuple

from .clocks import DeviceClock

FIELDS = (
    "n", "start_s", "requests", "context_tokens", "steps", "draft_tokens",
    "draft_s", "verify_s", "extend_s", "other_s", "cycle_s",
    "host_draft_s", "host_verify_s", "host_extend_s", "host_cycle_s", "accepted",
)  # fmt: skip
"""Of a row, in order."""

Row = Tuple[Optional[float], ...]

GAP_S = 1.0
"""A longer pause of the host between two cycles is no part of the first."""
BEHIND = 2
"""Cycles after which marks are read."""
MOST_PENDING = 256
"""Cycles that wait for their marks or results; beyond it the oldest is given up."""

_BEFORE_DRAFT, _BEFORE_VERIFY, _BEFORE_EXTEND = 1, 2, 3
"""Marks that a cycle has when a phase ends or begins."""


class Sink(Protocol):
    """Where rows go."""

    def take(self, row: Row) -> None:
        """Take a row."""
        ...

    def drop(self, cycles: int) -> None:
        """Learn that cycles have no row."""
        ...


class Cycle:
    """What is known of one call that may be a decode cycle."""

    __slots__ = (
        "accepted", "context_tokens", "draft_tokens", "host_cycle_s", "host_draft_s",
        "host_extend_s", "host_verify_s", "idle", "joined", "marks", "next", "requests",
        "size", "start_s", "steps", "whole",
    )  # fmt: skip

    def __init__(self, start_s: float, size: int, context_tokens: Optional[int]) -> None:
        self.start_s = start_s
        self.size = size
        self.context_tokens = context_tokens
        self.marks: List[Any] = []
        self.host_draft_s = self.host_verify_s = self.host_extend_s = 0.0
        self.host_cycle_s = 0.0
        self.idle = False
        self.steps: Optional[int] = None
        self.draft_tokens: Optional[int] = None
        self.requests: Optional[int] = size
        self.accepted: Optional[int] = None
        self.joined = False
        self.whole = False
        """Whether it is known what came next: `next`, or None for no cycle."""
        self.next: Optional[Cycle] = None


class Recorder:
    """Times cycles. One thread decodes and calls all but `settle`, which another one calls."""

    def __init__(
        self,
        clock: DeviceClock,
        now: Callable[[], float],
        sink: Sink,
        hooks: FrozenSet[str],
    ) -> None:
        """`hooks` are what is hooked of draft, verify, extend and accepted."""
        self._clock = clock
        self._now = now
        self._sink = sink
        self._hooks = hooks
        self._lock = threading.Lock()
        self._open: Optional[Cycle] = None
        self._pending: Deque[Cycle] = deque()
        self._awaiting: Deque[Cycle] = deque()
        self._count = 0
        self._last_s = 0.0

    # Of the decoding thread, in the order of a cycle

    def enter(self, size: int, context_tokens: Optional[int], *, idle: bool) -> None:
        """A call begins that may be a decode cycle, with a batch of `size` requests."""
        if not self._clock.usable():
            self._open = None
            return
        cycle = Cycle(self._now(), size, context_tokens)
        cycle.idle = idle
        cycle.marks.append(self._clock.record())
        self._open = cycle

    def drafted(self, host_s: float) -> None:
        """Drafting returned after `host_s`."""
        cycle = self._open
        if cycle is not None and len(cycle.marks) == _BEFORE_DRAFT:
            cycle.host_draft_s = host_s
            cycle.marks.append(self._clock.record())

    def verifying(self) -> None:
        """Verification begins: if nothing was drafted, drafting took the time until here."""
        cycle = self._open
        if cycle is not None and len(cycle.marks) == _BEFORE_DRAFT:
            cycle.marks.append(self._clock.record())

    def verified(self, host_s: float) -> None:
        """Verification returned after `host_s`."""
        cycle = self._open
        if cycle is not None and len(cycle.marks) == _BEFORE_VERIFY:
            cycle.host_verify_s = host_s
            cycle.marks.append(self._clock.record())

    def extended(self, host_s: float) -> None:
        """The draft's extension returned after `host_s`."""
        cycle = self._open
        if cycle is not None and len(cycle.marks) == _BEFORE_EXTEND:
            cycle.host_extend_s = host_s
            cycle.marks.append(self._clock.record())

    def leave(
        self, steps: Optional[int], draft_tokens: Optional[int], accepted: Optional[int] = None
    ) -> None:
        """The call returned. It was a decode cycle if it verified something for someone.

        `accepted`: as far as the call itself says it.
        """
        cycle, self._open = self._open, None
        if cycle is None:
            return
        with self._lock:
            self._last_s = self._now()
            if cycle.idle or len(cycle.marks) <= _BEFORE_VERIFY:
                self._release(cycle)
                self._close_last()
                return
            if len(cycle.marks) == _BEFORE_EXTEND:  # nobody goes on: there was nothing to extend
                cycle.marks.append(self._clock.record())
            cycle.host_cycle_s = self._last_s - cycle.start_s
            cycle.steps, cycle.draft_tokens = steps, draft_tokens
            cycle.accepted = accepted
            self._append(cycle)
            self._emit_ready(keep=BEHIND)

    def abandon(self) -> None:
        """The call raised."""
        cycle, self._open = self._open, None
        if cycle is not None:
            with self._lock:
                self._release(cycle)
                self._close_last()

    def join(self, size: int, requests: int, accepted: Optional[int]) -> None:
        """Take the result of the oldest cycle without one, whose batch had `size` requests.

        Of these, `requests` were still running and got `accepted` draft tokens; a cycle that
        nobody got anything of is left out. A cycle of another size lost its result.
        """
        with self._lock:
            while self._awaiting:
                cycle = self._awaiting.popleft()
                cycle.joined = True
                if cycle.size == size:
                    cycle.requests = requests
                    cycle.accepted = cycle.accepted if accepted is None else accepted
                    return

    def expect_no_results(self) -> None:
        """Go on without accepted tokens."""
        with self._lock:
            self._hooks -= {"accepted"}
            self._join_all()

    def stop(self) -> None:
        """Forget what is not complete; nothing follows."""
        with self._lock:
            self._open = None
            self._awaiting.clear()
            self._pending.clear()

    # Of the other thread

    def settle(self, *, at_once: bool = False) -> None:
        """Give out what no later cycle will complete, once the server has been idle for a while."""
        with self._lock:
            paused = self._open is None and self._now() - self._last_s > GAP_S
            if paused or at_once:
                self._close_last()
                self._join_all()
                self._emit_ready(keep=0)

    # Inside the lock

    def _append(self, cycle: Cycle) -> None:
        last = self._pending[-1] if self._pending else None
        if last is not None and not last.whole:
            last.whole = True
            if cycle.start_s - last.start_s - last.host_cycle_s <= GAP_S:
                last.next = cycle
        self._pending.append(cycle)
        if "accepted" in self._hooks:
            self._awaiting.append(cycle)
        else:
            cycle.joined = True
        if len(self._pending) > MOST_PENDING:
            self._give_up(self._pending.popleft())

    def _close_last(self) -> None:
        if self._pending:
            self._pending[-1].whole = True

    def _join_all(self) -> None:
        while self._awaiting:
            self._awaiting.popleft().joined = True

    def _give_up(self, cycle: Cycle) -> None:
        self._sink.drop(1)
        self._count += 1
        if not cycle.joined:
            self._awaiting.remove(cycle)
        self._release(cycle)

    def _emit_ready(self, *, keep: int) -> None:
        while len(self._pending) > keep and self._is_ready(self._pending[0]):
            cycle = self._pending.popleft()
            if cycle.requests:
                self._count += 1
                self._sink.take(self._row(cycle))
            self._release(cycle)

    def _is_ready(self, cycle: Cycle) -> bool:
        end = cycle.marks[-1] if cycle.next is None else cycle.next.marks[0]
        return cycle.whole and cycle.joined and self._clock.ready(end)

    def _release(self, cycle: Cycle) -> None:
        for mark in cycle.marks:
            self._clock.release(mark)

    def _row(self, cycle: Cycle) -> Row:
        seconds, marks, hooks = self._clock.seconds, cycle.marks, self._hooks
        drafts, extends = "draft" in hooks, "extend" in hooks
        draft_s = seconds(marks[0], marks[1]) if drafts else None
        verify_s = seconds(marks[1], marks[2])
        extend_s = seconds(marks[2], marks[3]) if extends else None
        cycle_s = other_s = None
        if cycle.next is not None:
            cycle_s = seconds(marks[0], cycle.next.marks[0])
            if draft_s is not None and extend_s is not None:
                other_s = cycle_s - draft_s - verify_s - extend_s
        return (
            self._count, cycle.start_s, cycle.requests, cycle.context_tokens,
            cycle.steps, cycle.draft_tokens,
            draft_s, verify_s, extend_s, other_s, cycle_s,
            cycle.host_draft_s if drafts else None,
            cycle.host_verify_s,
            cycle.host_extend_s if extends else None,
            cycle.host_cycle_s,
            cycle.accepted,
        )  # fmt: skip
