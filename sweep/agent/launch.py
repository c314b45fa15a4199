"""One launch, from the claim to the outcome: a list of named steps forward, and one back."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, List, Optional, Tuple

from sweep.agent import claim, cleanup, footprint, gpus, port, procs, server, tracing, trials, wire
from sweep.agent.admission import Admission, Ended
from sweep.agent.journal import Journal, utc_now
from sweep.agent.logfile import LogFile
from sweep.agent.ours import Ours
from sweep.agent.outcome import write_outcome
from sweep.agent.readiness import Readiness
from sweep.agent.telemetry import Telemetry
from sweep.agent.watch import Watch

_COLLECT_S = 5.0
"""Longest wait for the server's exit once its processes are killed."""

Step = Tuple[str, Callable[[], None]]


class Launch:
    """Runs one launch. Everything it starts, it also ends, whatever happens in between."""

    def __init__(self, directory: str, doc: wire.LaunchDoc, ident: wire.AgentIdent) -> None:
        self._directory = directory
        self._doc = doc
        self._ident = ident
        self._journal = Journal(directory)
        self._stop = trials.StopSignal()
        self._stalled: Optional[Ended] = None
        self._admission = Admission(doc, self._journal, self._stop)
        self._gpus: List[gpus.Gpu] = []
        self._claim: Optional[claim.Claim] = None
        self._footprint = footprint.Footprint(doc.nonce, ident.boot_id)
        self._ours = Ours(self._footprint, ident.pid, self._record)
        self._server: Optional[server.Server] = None
        self._watch: Optional[Watch] = None
        self._telemetry: Optional[Telemetry] = None
        self._left: List[str] = []
        self._goes_on = True
        """Whether the sweep may have a next launch, for which the claim is kept."""
        self._trouble: Optional[Ended] = None

    def run(self) -> None:
        """Run the launch to its outcome."""
        self._journal.event(
            "agent",
            pid=self._ident.pid,
            start_ticks=self._ident.start_ticks,
            boot_id=self._ident.boot_id,
            wire=wire.WIRE_VERSION,
            python=platform.python_version(),
            host=platform.node(),
            user=procs.user_name(os.geteuid()),
            clock_utc=utc_now(),
        )
        timer = threading.Timer(self._doc.deadlines.launch_s, self._out_of_time)
        timer.daemon = True
        timer.start()
        ended = self._forward()
        phase = self._journal.phase
        timer.cancel()
        self._goes_on = ended.end != "stopped"
        ended = self._back(ended)
        self._finish(ended, phase)

    def ask_to_stop(self, number: int) -> None:
        """End the launch in good order; called by a thread, never by a signal handler."""
        if not self._stop.event.is_set():
            self._tell("stopping", by=signal.Signals(number).name)
        self._stop.set("stopped")

    def _out_of_time(self) -> None:
        self._tell("deadline", which="launch", limit_s=self._doc.deadlines.launch_s)
        self._stop.set("deadline")

    def _server_ended(self, returncode: int) -> None:
        self._tell("server_exit", returncode=returncode, phase=self._journal.phase)
        self._stop.set("server_exit")

    def _stall(self, gpu_busy: Optional[bool]) -> None:
        self._stalled = Ended("stalled", "gpu_busy" if gpu_busy else None)
        self._stop.set("deadline")

    def _tell(self, kind: str, **fields: Any) -> None:
        """Append an event where the launch must go on even if the disk is full."""
        try:
            self._journal.event(kind, **fields)
        except OSError as problem:
            self._complain("cannot write the event %s %s" % (kind, fields), problem)

    def _complain(self, what: str, problem: OSError) -> None:
        with contextlib.suppress(OSError):  # agent.log lies on the same disk, which may be full
            print("%s: %s" % (what, problem), file=sys.stderr)
        self._trouble = self._trouble or Ended("error", "%s: %s" % (what, problem))

    def _record(self) -> None:
        """Note our processes for others; without it the launch still ends what it started."""
        try:
            self._footprint.save(self._directory)
            if self._claim is not None:
                living = [(pid, ticks) for pid, ticks in self._footprint.processes]
                self._claim.record(living)
        except OSError as problem:
            self._complain("cannot note our processes", problem)

    # Forward

    def _forward(self) -> Ended:
        steps: List[Step] = [
            ("claim", self._take_claim),
            ("clean", self._look_around),
            ("start", self._start),
            ("load", self._load),
            ("ready", self._generate),
            ("", self._measure),
        ]
        try:
            for phase, step in steps:
                self._check_stop()
                if phase:
                    self._journal.event("phase", phase=phase, trial=None, window=None)
                step()
            self._check_stop()
        except Ended as ended:
            return ended
        except Exception as problem:  # noqa: BLE001 - whatever it is, the server must be stopped
            return self._failed(problem)
        return Ended("done")

    def _failed(self, problem: Exception) -> Ended:
        message = "%s: %s" % (type(problem).__name__, problem)
        self._tell("error", message=message, traceback=traceback.format_exc())
        return Ended("error", message)

    def _check_stop(self) -> None:
        if self._stop.reason is not None:
            raise self._stalled or Ended(self._stop.reason)

    def _take_claim(self) -> None:
        self._gpus = self._admission.choose()
        self._claim = self._admission.claim(self._gpus, self._directory, self._ident)

    def _look_around(self) -> None:
        """Wait for other users of our GPUs to leave, and note what is there before the server."""
        self._footprint.gpu_memory_mib = self._admission.wait_until_unused(self._gpus)
        self._footprint.shm_before = footprint.shm_names()

    def _start(self) -> None:
        doc = self._doc
        number = port.pick(claim.directory())
        visible = server.visible_gpus(self._gpus) if doc.gpus is not None else {}
        env = server.environment(os.environb, doc, visible, self._directory)
        if doc.engine.probe is not None:
            env = server.with_probe(env, doc.engine.probe, self._directory)
        server.write_files(doc, self._directory)
        log = os.path.join(self._directory, wire.LOG_FILE)
        self._footprint.save(self._directory)
        try:
            started = server.start(
                server.command(doc, number, self._directory),
                env,
                log,
                port=number,
                on_exit=self._server_ended,
            )
        except server.StartFailed as problem:
            raise Ended("start_failed", str(problem)) from problem
        self._server = started
        self._footprint.server = [started.pid, started.start_ticks, number]
        self._footprint.processes = [[started.pid, started.start_ticks]]
        self._record()
        self._journal.event(
            "server_started", pid=started.pid, start_ticks=started.start_ticks, port=number
        )
        self._telemetry = Telemetry(self._directory, self._gpus, self._our_pids)
        self._telemetry.start()
        self._watch = Watch(
            LogFile(log, [*doc.engine.milestones, *doc.engine.fatal]),
            self._ours,
            self._journal,
            fatal=doc.engine.fatal,
            stall_s=doc.deadlines.stall_s,
            on_stall=self._stall,
            gpus=self._telemetry.load,
        )
        self._watch.start()

    def _our_pids(self) -> set[int]:
        return {pid for pid, _ in self._footprint.processes}

    def _load(self) -> None:
        assert self._server is not None
        self._readiness = Readiness(
            self._doc, self._server.port, self._ours, self._journal, self._stop
        )
        if not self._readiness.healthy():
            self._not_ready("load_timeout")

    def _generate(self) -> None:
        if not self._readiness.first_token():
            self._not_ready("not_ready")
        self._readiness.tell_settings()

    def _not_ready(self, end: str) -> None:
        self._check_stop()
        limit_s = self._doc.deadlines.load_s
        self._journal.event("deadline", which="load", limit_s=limit_s)
        raise Ended(end, "after %g s: %s" % (limit_s, self._readiness.detail))

    def _measure(self) -> None:
        assert self._server is not None
        assert self._watch is not None
        self._watch.calm()
        port, stop = self._server.port, self._stop
        complete = trials.run_trials(self._doc, port, self._journal, stop)
        tracing.run_traces(self._doc, port, self._journal, stop, complete)

    # Back

    def _back(self, ended: Ended) -> Ended:
        steps: List[Step] = [
            ("collect", self._collect),
            ("stop", self._stop_server),
            ("verify", self._verify),
        ]
        if self._server is None:
            steps = []
        for phase, step in [*steps, ("release", self._release)]:
            self._tell("phase", phase=phase, trial=None, window=None)
            ended = self._step_back(phase, step) or ended
        return self._trouble or ended

    def _step_back(self, phase: str, step: Callable[[], None]) -> Optional[Ended]:
        """Take one step; when it fails, those after it matter all the more."""
        try:
            step()
        except Exception as problem:  # noqa: BLE001 - whatever it is, it must not end the way back
            ended = self._failed(problem)
            self._left.append("unknown: %s failed (%s)" % (phase, ended.detail))
            return ended
        return None

    def _collect(self) -> None:
        if self._telemetry is not None:
            self._telemetry.finish()
        self._journal.sync()
        self._ours.note_shared_memory(self._ours.scan())

    def _stop_server(self) -> None:
        assert self._server is not None
        start_s = time.monotonic()
        how = "itself" if self._server.exited.is_set() else "term"
        if not cleanup.terminate(self._ours, self._doc.deadlines.stop_s):
            how = "kill"
        cleanup.kill_all(self._ours, time.monotonic() + _COLLECT_S)
        self._server.exited.wait(_COLLECT_S)
        self._tell("stopped", how=how, seconds=round(time.monotonic() - start_s, 6))
        if self._watch is not None:
            self._watch.finish()

    def _verify(self) -> None:
        until_s = time.monotonic() + self._doc.deadlines.verify_s
        self._left += cleanup.prove(self._ours, until_s)
        if self._left:
            self._tell("dirty", left=self._left)
        else:
            self._tell("clean")

    def _release(self) -> None:
        if self._claim is None:
            return
        if self._left:
            self._claim.abandon()
        else:
            self._claim.release(keep=self._goes_on)

    def _finish(self, ended: Ended, phase: str) -> None:
        outcome = wire.Outcome(
            end=ended.end,
            phase=phase,
            detail=ended.detail,
            server=self._server.ident if self._server is not None else None,
            patterns=self._watch.patterns if self._watch is not None else [],
            log_tail=[],
            clean=not self._left,
            left=self._left,
            phases_s={},
            files={},
        )
        write_outcome(self._directory, outcome, self._journal)
