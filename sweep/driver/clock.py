"""The real clock."""

from __future__ import annotations

import datetime as dt
import time


class SystemClock:
    """This machine's clock."""

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def utc(self) -> str:
        """The time of day, ISO 8601 with milliseconds and Z."""
        now = dt.datetime.now(dt.UTC)
        return now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
