"""A clock that jumps: sleeping takes no time, and lets others act."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

START = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


class FakeClock:
    """Implements ports.Clock; `on_sleep` functions are called after every sleep."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []
        self.on_sleep: list[Callable[[], None]] = []

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment."""
        return self.now_s

    def utc(self) -> str:
        """The time of day that goes with it."""
        moment = START + dt.timedelta(seconds=self.now_s - 1000.0)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"

    def sleep(self, seconds: float) -> None:
        """Jump."""
        self.now_s += seconds
        self.slept.append(seconds)
        for act in self.on_sleep:
            act()
