"""The trials of a launch: pin, warm up, then windows until the repeat rule is satisfied."""

from __future__ import annotations

import threading
from collections import Counter
from typing import FrozenSet, List, Optional, Sequence

from sweep.agent import flush, http, settings, wire
from sweep.agent.journal import Journal
from sweep.agent.load import Sent
from sweep.agent.loop import Pass, closed_loop
from sweep.agent.repeats import enough

CALL_S = 30.0
"""Longest wait for a pin, flush or scrape."""

COMPLETE = "complete"
ERRORS = "errors"
STALLED = "stalled"
NOT_PINNED = "not_pinned"
STOP_REASONS = ("server_exit", "stopped", "deadline")


class StopSignal:
    """Tells the load to end at once, and why. Safe for threads; the first reason stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: Optional[str] = None
        self.event = threading.Event()

    @property
    def reason(self) -> Optional[str]:
        """One of STOP_REASONS, None: go on."""
        return self._reason

    def set(self, reason: str) -> None:
        """End the load."""
        if reason not in STOP_REASONS:
            raise ValueError("unknown reason to stop: %s" % reason)
        with self._lock:
            if self._reason is None:
                self._reason = reason
        self.event.set()


def run_trials(
    doc: wire.LaunchDoc,
    port: int,
    journal: Journal,
    stop: StopSignal,
    flush_limit_s: float = flush.LIMIT_S,
) -> FrozenSet[str]:
    """Run the launch's trials in order against the server on `port`; return the ids of those that
    ended complete.

    Each trial that is begun ends with a `trial_end` event. One that ends badly does not keep the
    next from running; once `stop` is set, nothing more is begun.
    """
    complete = set()
    for trial in doc.trials:
        if stop.event.is_set():
            break
        running = _Trial(doc, trial, port, journal, stop=stop, flush_limit_s=flush_limit_s)
        if running.run() == COMPLETE:
            complete.add(trial.trial_id)
    return frozenset(complete)


class _End(Exception):
    """The trial is over: one of wire.TRIAL_ENDS, and a sentence about it."""

    def __init__(self, end: str, detail: Optional[str] = None) -> None:
        super().__init__(end, detail)
        self.end = end
        self.detail = detail


class _Trial:
    """One trial on its way."""

    def __init__(
        self,
        doc: wire.LaunchDoc,
        trial: wire.TrialDoc,
        port: int,
        journal: Journal,
        *,
        stop: StopSignal,
        flush_limit_s: float,
    ) -> None:
        self._engine = doc.engine
        self._request_s = doc.deadlines.request_s
        self._trial = trial
        self._port = port
        self._journal = journal
        self._stop = stop
        self._flush_limit_s = flush_limit_s
        self._throughputs: List[Optional[float]] = []

    def run(self) -> str:
        """Run the trial to its `trial_end` event; return its end."""
        try:
            self._pin()
            self._warm_up()
            self._require()
            while not self._throughputs or not enough(self._throughputs, self._trial.repeats):
                self._window(len(self._throughputs))
            self._require()
            end = _End(COMPLETE)
        except _End as reached:
            end = reached
        self._journal.sync()
        self._journal.event(
            "trial_end",
            trial=self._trial.trial_id,
            end=end.end,
            windows=len(self._throughputs),
            detail=end.detail,
        )
        return end.end

    def _enter(self, phase: str, window: Optional[int] = None) -> None:
        self._journal.event("phase", phase=phase, trial=self._trial.trial_id, window=window)

    def _pin(self) -> None:
        if not self._trial.pin:
            return
        self._enter("pin")
        for call in self._trial.pin:
            reply = http.call(self._port, call, CALL_S)
            self._check_stop()
            if reply.error or reply.status not in call.ok:
                answered = reply.error or "answered %s" % reply.status
                said = reply.body[:200].decode("utf-8", "replace")
                raise _End(ERRORS, "pin %s: %s %s" % (call.path, answered, said))

    def _warm_up(self) -> None:
        if not self._trial.warmup:
            return
        self._enter("warmup")
        self._check(self._send(self._trial.warmup, "warmup", None))

    def _require(self) -> None:
        """End the trial unless the server says that its settings are in force."""
        wanted = self._trial.expects
        if not wanted:
            return
        said = settings.ask(self._port, self._engine.settings)
        self._check_stop()
        values = [http.lookup(said, item.at) for item in wanted]
        self._journal.event("in_force", trial=self._trial.trial_id, values=values)
        for item, value in zip(wanted, values):
            if value != item.value:
                name = ".".join(map(str, item.at))
                raise _End(NOT_PINNED, "%s is %s, not %s" % (name, value, item.value))

    def _window(self, window: int) -> None:
        self._flush(window)
        self._enter("throwaway", window)
        self._check(self._send([self._trial.throwaway], "throwaway", window))
        self._scrape(window, "before")
        self._enter("measure", window)
        measured = self._send(self._trial.requests, "measure", window)
        if not self._stop.event.is_set():
            self._scrape(window, "after")
        self._journal.sync()
        self._journal.event(
            "window",
            trial=self._trial.trial_id,
            window=window,
            complete=measured.complete,
            start_s=measured.start_s,
            end_s=measured.end_s,
            requests_ok=len(measured.answered),
            requests_error=len(measured.failed),
            output_tokens=measured.output_tokens,
        )
        self._check(measured)
        self._throughputs.append(measured.throughput)
        failed = len(measured.failed)
        if failed > self._trial.max_error_share * len(measured.sents):
            raise _End(ERRORS, "window %d: %s" % (window, describe(measured.sents)))

    def _flush(self, window: int) -> None:
        call = self._engine.flush
        if call is None:
            return
        self._enter("flush", window)
        flushed = flush.flush(
            lambda: http.call(self._port, call, CALL_S),
            call.ok,
            self._stop.event.wait,
            self._flush_limit_s,
        )
        self._journal.event(
            "flush",
            trial=self._trial.trial_id,
            window=window,
            confirmed=flushed.confirmed,
            tries=flushed.tries,
            status=flushed.status,
        )
        self._check_stop()

    def _scrape(self, window: int, when: str) -> None:
        if not self._engine.scrapes:
            return
        self._enter("scrape", window)
        for call in self._engine.scrapes:
            reply = http.call(self._port, call, CALL_S)
            if reply.error is None and reply.status in call.ok:
                name = "%s.%d.%s.%s" % (self._trial.trial_id, window, when, call.name)
                self._journal.scrape(name, reply.body)

    def _send(self, requests: Sequence[wire.Request], role: str, window: Optional[int]) -> Pass:
        def keep(stream: int, sent: Sent) -> None:
            n = self._journal.next_request()
            record = sent.record(n, self._trial.trial_id, window, role, stream)
            self._journal.request(record, sent.chunk_s, sent.text)

        return closed_loop(
            self._port,
            requests,
            self._trial.answer,
            concurrency=self._trial.concurrency,
            timeout_s=self._request_s,
            stop=self._stop.event,
            keep=keep,
        )

    def _check(self, sent: Pass) -> None:
        """End the trial if it was stopped, or if the server stalled."""
        self._check_stop()
        if sent.stalled:
            self._journal.event("deadline", which="request", limit_s=self._request_s)
            raise _End(STALLED, describe(sent.sents))

    def _check_stop(self) -> None:
        if self._stop.reason is not None:
            raise _End(self._stop.reason)


def describe(sents: Sequence[Sent]) -> str:
    """Say how many requests failed, of what, and what the server said of the first."""
    failed = [sent for sent in sents if sent.error is not None]
    counts = Counter(sent.error for sent in failed)
    classes = ", ".join("%s: %d" % pair for pair in counts.most_common())
    text = "%d of %d requests failed (%s)" % (len(failed), len(sents), classes)
    said = [sent.meta["error_message"] for sent in failed if "error_message" in sent.meta]
    return text + "; the server said: %s" % said[0] if said else text
