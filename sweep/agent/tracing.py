"""A short window of the server's own profiler, after all that is measured.

A profiler slows a server down and may end it: nothing that it does can touch a trial that was
measured, because it runs when all of them have ended. What goes wrong is told in its event.
"""

from __future__ import annotations

import gzip
import os
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

from sweep.agent import http, wire
from sweep.agent.guard import guarding
from sweep.agent.journal import Journal
from sweep.agent.load import Channel, Sent
from sweep.agent.trials import CALL_S, StopSignal

POLL_S = 0.02
STEADY_S = 1.0
"""A file that did not grow for so long is whole."""
_PACKED = ".gz"


class _Failed(Exception):
    """There is no trace; the message says why."""


def run_traces(
    doc: wire.LaunchDoc,
    port: int,
    journal: Journal,
    stop: StopSignal,
    complete: FrozenSet[str],
) -> None:
    """Trace the trials that are marked, one after another. Each leaves a `trace` event.

    What did not end `complete` is not tried: its server may answer no more. Ends at once when
    `stop` is set. A window that went wrong may still be open, and a second one in it can end the
    server: the others are then not tried. Raises OSError when the disk refuses.
    """
    failed: Optional[str] = None
    for trial in doc.trials:
        if doc.engine.trace is None or not trial.traced or stop.event.is_set():
            continue
        if trial.trial_id not in complete:
            problem = "not tried, because the trial did not end well"
            journal.event("trace", trial=trial.trial_id, files=[], problem=problem)
            continue
        if failed is not None:
            problem = "not tried, because another trial of the launch had no trace: %s" % failed
            journal.event("trace", trial=trial.trial_id, files=[], problem=problem)
            continue
        window = _Window(doc, doc.engine.trace, trial, port, journal, stop=stop)
        failed = window.run()


class _Window:
    """The profiler's window of one trial."""

    def __init__(
        self,
        doc: wire.LaunchDoc,
        trace: wire.Trace,
        trial: wire.TrialDoc,
        port: int,
        journal: Journal,
        *,
        stop: StopSignal,
    ) -> None:
        self._request_s = doc.deadlines.request_s
        self._trace = trace
        self._trial = trial
        self._port = port
        self._journal = journal
        self._stop = stop
        self._directory = os.path.join(journal.directory, wire.TRACES_DIR, trial.trial_id)

    def run(self) -> Optional[str]:
        """Open the window while requests are decoded, and keep what the server wrote; return why
        there is no trace, None: there is one."""
        trial = self._trial.trial_id
        self._journal.event("phase", phase="trace", trial=trial, window=None)
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        failed: Optional[str] = None
        try:
            self._pin()
            self._profile()
            self._wait_for_files()
        except _Failed as failure:
            failed = str(failure)
        problem = self._bound() if failed is None else failed
        if failed is not None:
            shutil.rmtree(self._directory)
            os.mkdir(self._directory, 0o700)
        files = sorted(os.listdir(self._directory))
        self._journal.sync()
        self._journal.event("trace", trial=trial, files=files, problem=problem)
        return failed

    def _pin(self) -> None:
        for call in self._trial.pin:
            self._call(call, CALL_S)

    def _profile(self) -> None:
        requests = self._trial.warmup
        with (
            guarding(self._stop.event) as guard,
            ThreadPoolExecutor(max(1, len(requests))) as threads,
        ):
            channels = [Channel(self._port, guard) for _ in requests]
            sending = [
                threads.submit(channel.send, request, self._trial.answer, self._request_s)
                for channel, request in zip(channels, requests)
            ]
            try:
                self._wait_for_output(channels, sending)
                self._call(self._start(), self._trace.limit_s)
            finally:
                for stream, sent in enumerate(sending):
                    self._keep(stream, sent.result())
        if not self._files():  # the window did not end by itself, after so many steps
            self._call(self._trace.stop, self._trace.limit_s)

    def _wait_for_output(self, channels: List[Channel], sending: List[Future[Sent]]) -> None:
        """Wait until every stream decodes: what comes before is no step of decoding."""
        waiting = list(zip(channels, sending))
        while waiting:
            self._check_stop()
            if any(sent.done() for _, sent in waiting):
                raise _Failed("a request ended before the profiler could be started")
            waiting = [(channel, sent) for channel, sent in waiting if channel.output_s < 0]
            time.sleep(POLL_S)

    def _start(self) -> wire.HttpCall:
        call = self._trace.start
        body: Dict[str, Any] = {**(call.body or {}), self._trace.directory_at: self._directory}
        return wire.HttpCall(call.path, call.method, body, call.ok, call.name)

    def _call(self, call: wire.HttpCall, limit_s: float) -> None:
        reply = http.call(self._port, call, limit_s)
        self._check_stop()
        if reply.error or reply.status not in call.ok:
            answered = reply.error or "answered %s" % reply.status
            said = reply.body[:200].decode("utf-8", "replace").strip()
            raise _Failed(("%s %s: %s" % (call.path, answered, said)).rstrip(": "))

    def _keep(self, stream: int, sent: Sent) -> None:
        number = self._journal.next_request()
        record = sent.record(number, self._trial.trial_id, None, "trace", stream)
        self._journal.request(record, sent.chunk_s, sent.text)

    def _check_stop(self) -> None:
        if self._stop.reason is not None:
            raise _Failed("the launch ended meanwhile (%s)" % self._stop.reason)

    # What the server wrote

    def _files(self) -> List[Tuple[str, int]]:
        """Name and size of each trace, in order."""
        suffixes = (self._trace.suffix, self._trace.suffix + _PACKED)
        with os.scandir(self._directory) as entries:
            found = [(e.name, e.stat().st_size) for e in entries if e.name.endswith(suffixes)]
        return sorted(found)

    def _wait_for_files(self) -> None:
        """Wait until there are traces that no longer grow."""
        until_s = time.monotonic() + self._trace.limit_s
        files, since_s = self._files(), time.monotonic()
        while not files or time.monotonic() - since_s < STEADY_S:
            self._check_stop()
            if time.monotonic() > until_s:
                what = "grows on" if files else "was not written"
                raise _Failed("the trace %s within %g s" % (what, self._trace.limit_s))
            time.sleep(POLL_S)
            now = self._files()
            if now != files:
                files, since_s = now, time.monotonic()

    def _bound(self) -> Optional[str]:
        """Pack the traces and keep the first that have room; what else is there goes."""
        kept_bytes, dropped = 0, 0
        for name in sorted(os.listdir(self._directory)):
            path = os.path.join(self._directory, name)
            if not name.endswith((self._trace.suffix, self._trace.suffix + _PACKED)):
                os.remove(path)
                continue
            if not name.endswith(_PACKED):
                path = _pack(path)
            size = os.stat(path).st_size
            if kept_bytes + size > self._trace.most_bytes:
                os.remove(path)
                dropped += 1
            else:
                kept_bytes += size
        if not dropped:
            return None
        return "%d of its files had no room in %d bytes" % (dropped, self._trace.most_bytes)


def _pack(path: str) -> str:
    """Compress a file; return its new path."""
    with open(path, "rb") as plain, gzip.open(path + _PACKED, "wb", 6) as packed:
        shutil.copyfileobj(plain, packed)
    os.remove(path)
    return path + _PACKED
