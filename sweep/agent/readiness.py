"""When a server is ready: our process listens, health is good, and one token was generated."""

from __future__ import annotations

import time
from typing import Any, Optional

from sweep.agent import load, procs, settings, wire
from sweep.agent.http import call, lookup
from sweep.agent.journal import Journal
from sweep.agent.ours import Ours
from sweep.agent.trials import StopSignal

HTTP_OK = 200
_HEALTH_TIMEOUT_S = 2.0
_FIRST_PAUSE_S = 0.02
_LAST_PAUSE_S = 1.0
_PAUSE_SHARE = 1 / 60
"""Of the time waited so far: 50 ms after 3 s, a second after a minute."""


class Readiness:
    """Waits for one server. Every wait ends at once when `stop` is set."""

    def __init__(
        self, doc: wire.LaunchDoc, port: int, ours: Ours, journal: Journal, stop: StopSignal
    ) -> None:
        self._doc = doc
        self._port = port
        self._ours = ours
        self._journal = journal
        self._stop = stop
        self._start_s = time.monotonic()
        self.detail: Optional[str] = None
        """The last thing that kept the server from being ready."""

    @property
    def _left_s(self) -> float:
        return self._start_s + self._doc.deadlines.load_s - time.monotonic()

    def _wait(self) -> bool:
        """Pause, longer the longer it lasts; False when there is nothing more to wait for."""
        waited_s = time.monotonic() - self._start_s
        pause_s = min(_LAST_PAUSE_S, max(_FIRST_PAUSE_S, waited_s * _PAUSE_SHARE))
        self._stop.event.wait(max(0.0, min(pause_s, self._left_s)))
        return not self._stop.event.is_set() and self._left_s > 0

    def healthy(self) -> bool:
        """Wait until our process listens and its health is good; False: it did not come to it."""
        listening = False
        while True:
            if not listening and self._ours.listens(self._port):
                listening = True
                self._journal.event("port_open")
            if listening and self._ask_health():
                self._journal.event("healthy")
                return True
            if not listening:
                self.detail = self._who_listens()
            if not self._wait():
                return False

    def _ask_health(self) -> bool:
        health = self._doc.engine.health
        reply = call(self._port, health, max(0.1, min(_HEALTH_TIMEOUT_S, self._left_s)))
        if reply.status in health.ok and reply.error is None:
            return True
        self.detail = "health %s answers %s" % (health.path, reply.error or reply.status)
        return False

    def _who_listens(self) -> str:
        inodes = procs.listening_sockets(self._port)
        if not inodes:
            return "nothing listens on port %d" % self._port
        pids = procs.holders(inodes, procs.snapshot())
        who = ", ".join(map(str, pids)) or "of another user"
        return "port %d is held by a process that is not ours: pid %s" % (self._port, who)

    def tell_settings(self) -> None:
        """Record what the server says it runs with."""
        calls, wanted = self._doc.engine.settings, self._doc.settings_at
        if not calls or not wanted:
            return
        said = settings.ask(self._port, calls)
        values = None
        if said is not None:
            values = {name: lookup(said, path) for name, path in wanted.items() if _has(said, path)}
        self._journal.event("settings", values=values)

    def first_token(self) -> bool:
        """Wait until the server has generated; False: it did not come to it."""
        engine = self._doc.engine
        while True:
            sent = load.send(
                self._port, engine.ready, engine.ready_answer, self._left_s, self._stop.event
            )
            record = sent.record(self._journal.next_request(), None, None, "ready", 0)
            self._journal.request(record, sent.chunk_s, sent.text)
            self._journal.sync()
            if sent.error is None:
                self._journal.event("first_token")
                return True
            said = sent.meta.get("error_message")
            self.detail = "generation fails: %s" % sent.error + (" (%s)" % said if said else "")
            if not self._wait():
                return False


def _has(data: Any, path: wire.KeyPath) -> bool:
    """Whether a path leads somewhere; a value that is null is there."""
    parent, key = lookup(data, path[:-1]), path[-1]
    return key in parent if isinstance(parent, dict) else lookup(data, path) is not None
