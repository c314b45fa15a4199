"""Emptying the server's prompt cache, and knowing whether that worked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, Optional, Sequence

from sweep.agent.http import Reply

LIMIT_S = 60.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
BUSY = 400
"""What SGLang answers while it is not idle yet."""


@dataclass(frozen=True)
class Flushed:
    """How a flush went; `status` None: no answer to the last try."""

    confirmed: bool
    tries: int
    status: Optional[int]


def flush(
    ask: Callable[[], Reply],
    ok: Sequence[int],
    wait: Callable[[float], bool],
    limit_s: float = LIMIT_S,
    now: Callable[[], float] = time.monotonic,
) -> Flushed:
    """Ask until the server says that it has flushed, at most `limit_s` long.

    A busy server (status 400) and one that does not answer are asked again, with pauses that
    double from 0.1 s to 5 s; any other status is final. `wait` pauses, and returns True when
    there is no point in going on.
    """
    deadline_s = now() + limit_s
    pause_s = FIRST_PAUSE_S
    tries = 0
    while True:
        reply = ask()
        tries += 1
        confirmed = reply.status in ok and reply.error is None
        final = reply.status not in (BUSY, None)
        if confirmed or final or now() + pause_s > deadline_s or wait(pause_s):
            return Flushed(confirmed, tries, reply.status)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
