"""A flush is retried while the server is busy, and is never taken for done."""

from __future__ import annotations

from collections.abc import Callable

from sweep.agent.flush import Flushed, flush
from sweep.agent.http import Reply


class Script:
    """A server that gives scripted statuses, the last for ever, and a clock that waits move."""

    def __init__(self, *statuses: int | None, stop_at_s: float = float("inf")) -> None:
        self.statuses = list(statuses)
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.stop_at_s = stop_at_s

    def ask(self) -> Reply:
        """Give the next status."""
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return Reply(status, b"", None if status else "timeout")

    def wait(self, seconds: float) -> bool:
        """Let time pass."""
        self.pauses.append(seconds)
        self.now_s += seconds
        return self.now_s >= self.stop_at_s

    def now(self) -> float:
        """The time [s]."""
        return self.now_s

    def flush(self) -> Flushed:
        """Flush with the default limit of 60 s."""
        clock: Callable[[], float] = self.now
        return flush(self.ask, [200], self.wait, now=clock)


def test_done_at_once() -> None:
    """A first 200 is one try and no pause."""
    script = Script(200)
    assert script.flush() == Flushed(confirmed=True, tries=1, status=200)
    assert script.pauses == []


def test_busy_twice() -> None:
    """400 twice then 200: two pauses that double, and confirmed."""
    script = Script(400, 400, 200)
    assert script.flush() == Flushed(confirmed=True, tries=3, status=200)
    assert script.pauses == [0.1, 0.2]


def test_always_busy_gives_up_within_the_limit() -> None:
    """400 for ever is unconfirmed after at most 60 s of pauses, none longer than 5 s."""
    script = Script(400)
    flushed = script.flush()
    assert not flushed.confirmed
    assert 50 < script.now_s <= 60
    assert flushed.tries == len(script.pauses) + 1
    assert max(script.pauses) == 5.0


def test_other_status_is_final() -> None:
    """A server without the call is asked once."""
    assert Script(404).flush() == Flushed(confirmed=False, tries=1, status=404)


def test_no_answer_is_retried() -> None:
    """A try without answer is repeated."""
    assert Script(None, 200).flush() == Flushed(confirmed=True, tries=2, status=200)


def test_stop_ends_the_waiting() -> None:
    """A stop during a pause ends it, unconfirmed."""
    script = Script(400, stop_at_s=1.0)
    assert script.flush() == Flushed(confirmed=False, tries=4, status=400)
