"""From marks and calls to one row per decode cycle: what of the probe knows time, and no engine.

A cycle has four marks on the device: at its entry, after drafting, after verification, after the
draft's extension; it lasts until the next cycle's entry. Results join in the order of their cycles.

The decoding thread notes. Where only it may read marks, it reads those of older cycles too, and
the other thread gives out what is left once the server pauses; elsewhere that one gives out all.
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
"""Cycles whose marks are not read yet while others follow."""
MOST_PENDING = 256
"""Cycles in the queue; more are given up."""

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

    def hurry(self) -> None:
        """Learn that nobody is served any more: the server may be stopped at any moment."""
        ...


class Cycle:
    """What is known of one call that may be a decode cycle."""

    __slots__ = (
        "accepted", "context_tokens", "draft_tokens", "host_cycle_s", "host_s", "idle", "joined",
        "marks", "next", "requests", "size", "start_s", "steps", "whole",
    )  # fmt: skip
    host_cycle_s: float
    steps: Optional[int]
    draft_tokens: Optional[int]
    accepted: Optional[int]
    joined: bool
    """These are known when the call returns, which is when the cycle is put into the queue."""

    def __init__(
        self, start_s: float, size: int, context_tokens: Optional[int], mark: Any, *, idle: bool
    ) -> None:
        self.start_s = start_s
        self.size = size
        self.context_tokens = context_tokens
        self.idle = idle
        self.marks: List[Any] = [mark]
        self.host_s = [0.0, 0.0, 0.0]
        """Of draft, verify and extend."""
        self.requests = size
        self.next: Optional[Cycle] = None
        self.whole = False
        """Whether it is known what came next: `next`, or None for no cycle. Set after it."""


class Recorder:
    """Times cycles. One thread decodes and calls all but `settle`, which another one calls."""

    def __init__(
        self,
        clock: DeviceClock,
        now: Callable[[], float],
        sink: Sink,
        hooks: FrozenSet[str],
        *,
        whole: bool,
    ) -> None:
        """`hooks` are what is hooked of draft, verify, extend and accepted; `whole`: the cycle has
        no other phases, and what they leave of it is known."""
        self._clock = clock
        self._mark = clock.record
        self._usable = clock.usable
        self._now = now
        self._sink = sink
        self._hooks = hooks
        self._results = "accepted" in hooks
        self._whole = whole
        self._open: Optional[Cycle] = None
        self._last: Optional[Cycle] = None
        """The cycle that may still go on until the next one."""
        self._last_s = 0.0
        self._awaiting: Deque[Cycle] = deque()
        self._pending: Deque[Cycle] = deque()
        self._behind = MOST_PENDING // 2 if clock.anywhere else BEHIND
        """More of these in the queue, and the decoding thread gives out itself."""
        self._giving = threading.Lock()
        """Held by whoever takes from the queue."""
        self._count = 0
        self._stopped = False

    # Of the decoding thread, in the order of a cycle

    def enter(self, size: int, context_tokens: Optional[int], *, idle: bool) -> None:
        """A call begins that may be a decode cycle, with a batch of `size` requests."""
        if self._usable() and not self._stopped:
            start_s = self._now()
            self._open = Cycle(start_s, size, context_tokens, self._mark(), idle=idle)

    def drafted(self, host_s: float) -> None:
        """Drafting returned after `host_s`."""
        cycle = self._open
        if cycle is not None and len(cycle.marks) == _BEFORE_DRAFT:
            cycle.marks.append(self._mark())
            cycle.host_s[0] = host_s

    def verifying(self) -> None:
        """Verification begins: if nothing was drafted, drafting took the time until here."""
        cycle = self._open
        if cycle is not None and len(cycle.marks) == _BEFORE_DRAFT:
            cycle.marks.append(self._mark())

    def verified(self, host_s: float) -> None:
        """Verification returned after `host_s`."""
        cycle = self._open
        if cycle is not None and len(cycle.marks) == _BEFORE_VERIFY:
            cycle.marks.append(self._mark())
            cycle.host_s[1] = host_s

    def extended(self, host_s: float) -> None:
        """The draft's extension returned after `host_s`."""
        cycle = self._open
        if cycle is not None and len(cycle.marks) == _BEFORE_EXTEND:
            cycle.marks.append(self._mark())
            cycle.host_s[2] = host_s

    def leave(
        self, steps: Optional[int], draft_tokens: Optional[int], accepted: Optional[int] = None
    ) -> None:
        """The call returned. It was a decode cycle if it verified something for someone.

        `accepted`: as far as the call itself says it.
        """
        cycle, self._open = self._open, None
        if cycle is None:
            return
        self._last_s = self._now()
        if cycle.idle or len(cycle.marks) <= _BEFORE_VERIFY:
            self._release(cycle)
            self._end_last()
            return
        if len(cycle.marks) == _BEFORE_EXTEND:  # nobody goes on: there was nothing to extend
            cycle.marks.append(self._mark())
        cycle.host_cycle_s = self._last_s - cycle.start_s
        cycle.steps, cycle.draft_tokens, cycle.accepted = steps, draft_tokens, accepted
        self._append(cycle)
        if len(self._pending) > self._behind and self._giving.acquire(blocking=False):
            try:
                self._give_out(keep=BEHIND)
            finally:
                self._giving.release()

    def abandon(self) -> None:
        """The call raised."""
        cycle, self._open = self._open, None
        if cycle is not None:
            self._release(cycle)
            self._end_last()

    def join(
        self, size: int, requests: int, accepted: Optional[int], *, goes_on: bool = True
    ) -> None:
        """Take the result of the oldest cycle without one, whose batch had `size` requests.

        Of these, `requests` were still running and got `accepted` draft tokens; a cycle that
        nobody got anything of is left out. A cycle of another size lost its result. `goes_on`:
        whether any of them is still running; if not, the next cycle comes after a prefill.
        """
        while self._awaiting:
            cycle = self._awaiting.popleft()
            if cycle.size == size:
                cycle.requests = requests
                if accepted is not None:
                    cycle.accepted = accepted
                cycle.joined = True
                if not goes_on and cycle is self._last:
                    self._end_last()
                    self._sink.hurry()
                return
            cycle.joined = True

    def expect_no_results(self) -> None:
        """Go on without accepted tokens."""
        self._results = False
        while self._awaiting:
            self._awaiting.popleft().joined = True

    def stop(self) -> None:
        """Forget what is not complete; nothing follows."""
        self._stopped = True
        self._open = None

    def _append(self, cycle: Cycle) -> None:
        if len(self._pending) >= MOST_PENDING:
            self._sink.drop(1)
            self._release(cycle)
            self._end_last()
            return
        last = self._last
        if last is not None:
            if cycle.start_s - last.start_s - last.host_cycle_s <= GAP_S:
                last.next = cycle
            last.whole = True
        self._last = cycle
        cycle.joined = not self._results
        if self._results:
            self._awaiting.append(cycle)
        self._pending.append(cycle)

    def _end_last(self) -> None:
        """No cycle follows the last one."""
        last, self._last = self._last, None
        if last is not None:
            last.whole = True

    def _release(self, cycle: Cycle) -> None:
        for mark in cycle.marks:
            self._clock.release(mark)

    # Of the other thread

    def settle(self, *, at_once: bool = False) -> None:
        """Give out what is complete, where marks can be read here, or once nobody decodes any more;
        and what nothing will complete once the server has paused, or `at_once`."""
        calm = self._open is None
        final = at_once or (calm and self._now() - self._last_s > GAP_S)
        if final or (calm and self._last is None):
            with self._giving:
                self._give_out(keep=0, final=final)
        elif self._clock.anywhere and self._giving.acquire(blocking=False):
            try:
                self._give_out(keep=BEHIND)
            finally:
                self._giving.release()

    def _give_out(self, *, keep: int, final: bool = False) -> None:
        """Give out the oldest cycles that are complete and that the device has passed, but `keep`
        of them; `final`: those too that are not complete."""
        while len(self._pending) > keep and not self._stopped:
            cycle = self._pending[0]
            if not (final or (cycle.whole and cycle.joined)):
                return
            following = cycle.next  # read once: it may be found at this very moment
            end = cycle.marks[-1] if following is None else following.marks[0]
            if not self._clock.ready(end):
                return
            self._pending.popleft()
            if cycle.requests:
                self._count += 1
                self._sink.take(self._row(cycle, following))
            self._release(cycle)

    def _row(self, cycle: Cycle, following: Optional[Cycle]) -> Row:
        seconds, marks = self._clock.seconds, cycle.marks
        drafts, extends = "draft" in self._hooks, "extend" in self._hooks
        draft_s = seconds(marks[0], marks[1]) if drafts else None
        verify_s = seconds(marks[1], marks[2])
        extend_s = seconds(marks[2], marks[3]) if extends else None
        cycle_s = other_s = None
        if following is not None:
            cycle_s = seconds(marks[0], following.marks[0])
            if self._whole:
                other_s = cycle_s - (draft_s or 0.0) - verify_s - (extend_s or 0.0)
        host_draft_s, host_verify_s, host_extend_s = cycle.host_s
        return (
            self._count, cycle.start_s, cycle.requests, cycle.context_tokens,
            cycle.steps, cycle.draft_tokens,
            draft_s, verify_s, extend_s, other_s, cycle_s,
            host_draft_s if drafts else None,
            host_verify_s,
            host_extend_s if extends else None,
            cycle.host_cycle_s,
            cycle.accepted,
        )  # fmt: skip
