"""Ends connections from outside: at their deadlines, or all at once.

Whoever is blocked in recv, on whatever, wakes when its socket is shut. So no socket needs a
timeout of its own, and nothing that trickles outlives its deadline.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Iterator, Optional, Set

from sweep.agent.http import shut

TICK_S = 0.02
"""How late a guard may be."""
TIMEOUT = "timeout"
STOPPED = "stopped"


class Watched:
    """A connection in use; `cut` says why the guard shut it, None: it did not."""

    def __init__(self, sock: socket.socket, deadline_s: float) -> None:
        self._sock = sock
        self.deadline_s = deadline_s
        self.cut: Optional[str] = None

    def end(self, reason: str) -> None:
        """Shut the connection; the first reason stays."""
        if self.cut is None:
            self.cut = reason
            shut(self._sock)


class Guard:
    """Shuts connections at their deadlines, and all of them once `stop` is set or `halt` called.

    Its thread lives from `start` to `close`; use `guarding`.
    """

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self._lock = threading.Lock()
        self._watched: Set[Watched] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guard", daemon=True)
        self.halted: Optional[str] = None
        """Why every connection was shut; None: none was by `halt` or `stop`."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be sent."""
        return self.halted is not None or self.stop.is_set()

    def start(self) -> None:
        """Start the guard's thread."""
        self._thread.start()

    def close(self) -> None:
        """End the guard's thread."""
        self._over.set()
        self._thread.join()

    def halt(self, reason: str) -> None:
        """Shut every connection, and those that are yet to come; the first reason stays."""
        with self._lock:
            self.halted = self.halted or reason
            for watched in self._watched:
                watched.end(self.halted)

    @contextlib.contextmanager
    def watch(self, sock: socket.socket, deadline_s: float) -> Iterator[Watched]:
        """Guard a connection until a time of the monotonic clock."""
        watched = Watched(sock, deadline_s)
        with self._lock:
            self._watched.add(watched)
            if self.halted:
                watched.end(self.halted)
        try:
            yield watched
        finally:
            with self._lock:
                self._watched.discard(watched)

    def _run(self) -> None:
        while not self._over.wait(TICK_S):
            if self.stop.is_set():
                self.halt(STOPPED)
            now_s = time.monotonic()
            with self._lock:
                for watched in self._watched:
                    if now_s >= watched.deadline_s:
                        watched.end(TIMEOUT)


@contextlib.contextmanager
def guarding(stop: threading.Event) -> Iterator[Guard]:
    """Give a guard that works inside the with block."""
    guard = Guard(stop)
    guard.start()
    try:
        yield guard
    finally:
        guard.close()
