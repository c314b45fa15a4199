"""The driver process: one per run of a sweep, in a session of its own."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType

from sweep.agent import procs, wire
from sweep.driver.clock import SystemClock
from sweep.driver.departures import Departures
from sweep.driver.lanes import Lanes
from sweep.driver.ray_files import remove_abandoned
from sweep.driver.sweep_run import RunResult, RunSetup, SweepRun, nodes_of
from sweep.driver.thread_lanes import ThreadLanes
from sweep.engines import engine_of
from sweep.model.errors import InterruptedSweep, StoreError, SweepError
from sweep.model.experiment import NodeSpec
from sweep.model.record import SweepRecord
from sweep.nodes.access import agent_python, node_factory
from sweep.nodes.archive import agent_archive
from sweep.ports import Clock, Node
from sweep.store.directory import DRIVER_LOG, LAUNCHES_DIR, SweepLock
from sweep.store.read import read_sweep
from sweep.store.sweep_db import SweepDb

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Remembers the first SIGINT or SIGTERM; the run looks at it between events."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._interrupts = False

    def install(self) -> None:
        """Catch both signals, those too that were held back since the process was started."""
        for number in _STOP_SIGNALS:
            signal.signal(number, self._caught)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let a signal end the block at once by KeyboardInterrupt, which libraries let pass."""
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def requested(self) -> str | None:
        """Return the signal's name, None when none came."""
        return self._name

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        self._name = self._name or name
        if self._interrupts:
            self._interrupts = False
            raise KeyboardInterrupt(name)


def drive(
    directory: Path, lock: SweepLock, environment: Mapping[str, str], *, keep_going: bool
) -> int:
    """Run the sweep of `directory` to its end and return the exit code.

    `environment` is the user's, as it was before Ray changed this process's.
    """
    signals = StopSignals()
    signals.install()

    def lanes(factories: Mapping[str, Callable[[], Node]], clock: Clock) -> Lanes:
        from sweep.driver.ray_driver import RayLanes  # noqa: PLC0415 - 0.4 s to import

        return RayLanes(factories, clock)

    run = Drive(directory, lock, environment, keep_going=keep_going)
    return run.to_end(lanes, signals.requested, signals.interrupting)


def stop_what_runs(directory: Path, lock: SweepLock, environment: Mapping[str, str]) -> int:
    """Stop, on its nodes, what a dead driver's sweep still runs; record it as interrupted. A node
    that does not answer soon keeps nobody from stopping the others."""
    remove_abandoned()
    run = Drive(directory, lock, environment, keep_going=False)
    return run.to_end(ThreadLanes, lambda: "cancel", None)


class Drive:
    """One run of a sweep's database by this process."""

    def __init__(
        self,
        directory: Path,
        lock: SweepLock,
        environment: Mapping[str, str],
        *,
        keep_going: bool,
    ) -> None:
        self._directory = directory.absolute()
        self._environment = environment
        self._keep_going = keep_going
        self._clock = SystemClock()
        this = procs.read(os.getpid())
        assert this is not None
        host, now = socket.gethostname(), self._clock.utc()
        self._lock = lock
        self._holder = f"driver pid {this.pid} on {host} since {now}"
        lock.name_holder(self._holder)
        self._database = SweepDb.open(directory)
        self._run = self._database.begin_run(this.pid, this.start_ticks, procs.boot_id(), host, now)

    def to_end(
        self,
        make_lanes: Callable[[Mapping[str, Callable[[], Node]], Clock], Lanes],
        stop_requested: Callable[[], str | None],
        interrupting: Callable[[], AbstractContextManager[None]] | None,
    ) -> int:
        """Run, report, and record how it ended. `interrupting` is what the report is written in,
        and raises KeyboardInterrupt when that is to end early; None: no report is written."""
        result = RunResult(1, f"the driver failed: see {self._directory / DRIVER_LOG}")
        try:
            result = self._launches(make_lanes, stop_requested)
            if interrupting is not None:
                result = self._report(result, stop_requested, interrupting)
        except SweepError as error:
            hint = f" ({error.hint})" if error.hint else ""
            result = RunResult(error.exit_code, f"{error.message}{hint}")
            print(f"{self._clock.utc()} {result.note}", file=sys.stderr)
        finally:
            self._record_end(result)
        return result.exit_code

    def _record_end(self, result: RunResult) -> None:
        try:
            self._database.end_run(self._run, self._clock.utc(), result.exit_code, result.note)
        except StoreError as error:  # a full disk; whoever follows finds it in the log
            print(f"{self._clock.utc()} {error.message}", file=sys.stderr)
        finally:
            self._database.close()

    def _launches(
        self,
        make_lanes: Callable[[Mapping[str, Callable[[], Node]], Clock], Lanes],
        stop_requested: Callable[[], str | None],
    ) -> RunResult:
        experiment = self._database.experiment()
        nodes = nodes_of(self._database)
        factories = {
            node.name: node_factory(node, self._environment, self._clock) for node in nodes
        }
        self._database.set_stage(self._run, "starting the lanes")
        lanes = make_lanes(factories, self._clock)
        specs = {node.name: node for node in nodes}
        departures = Departures(self._database, specs, factories, self._clock, keep=experiment.keep)
        told = False

        def asked() -> str | None:
            nonlocal told
            by = stop_requested()
            if by is not None and not told:
                told = True
                self._lock.name_holder(self._holder, stopping=True)
            return by

        try:
            self._database.set_stage(self._run, "running")
            setup = self._setup(nodes)
            result = SweepRun(
                database=self._database,
                lanes=lanes,
                clock=self._clock,
                engine=engine_of(experiment.engine),
                setup=setup,
                stop_requested=asked,
                leave=departures.begin,
                fastest=self._fastest,
            ).run()
        finally:
            lanes.close()
        departures.end()
        return result

    def _fastest(self, scan: str) -> str | None:
        """Return the configuration that a scan found to be the fastest."""
        from sweep.analysis.confirmation import fastest_of  # noqa: PLC0415 - pandas, once
        from sweep.report.table import read_frame  # noqa: PLC0415

        record = read_sweep(self._database)
        frame = read_frame(record, engine_of(record.experiment.engine).count)
        return fastest_of(frame, record.experiment, scan)

    def _setup(self, nodes: Sequence[NodeSpec]) -> RunSetup:
        archive_name, archive = agent_archive()
        sweep_id = self._database.sweep_id
        planned = self._database.nodes().items()
        return RunSetup(
            run=self._run,
            launches_directory=self._directory / LAUNCHES_DIR,
            workdirs={name: f"{node.workdir}/{sweep_id}" for name, node in planned},
            archive_name=archive_name,
            archive=archive,
            owner=wire.Owner(
                user=procs.user_name(os.geteuid()), host=socket.gethostname(), sweep=sweep_id
            ),
            pythons={node.name: agent_python(node) for node in nodes},
            keep_going=self._keep_going,
        )

    def _report(
        self,
        result: RunResult,
        stop_requested: Callable[[], str | None],
        interrupting: Callable[[], AbstractContextManager[None]],
    ) -> RunResult:
        """Write plots, table and report; a fault here costs no measurement, but is told. A signal
        that did not stop the launches themselves ends it: `view` writes the report as well."""
        self._database.set_stage(self._run, "drawing plots and report")
        stopped_before = result.exit_code == InterruptedSweep.exit_code
        try:
            record = read_sweep(self._database)
            with interrupting():
                self._write_report(record, None if stopped_before else stop_requested())
        except KeyboardInterrupt as stopped:
            note = (
                f"stopped ({stopped}) while the report was written: every measurement is kept, "
                f"and `sweep view {self._database.sweep_id}` writes it"
            )
            return RunResult(
                InterruptedSweep.exit_code, "; ".join(filter(None, [result.note, note]))
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the measurements are safe
            traceback.print_exc()
            note = f"the report could not be written: {error}; every measurement is kept"
            return RunResult(result.exit_code or 1, result.note or note)
        return result

    def _write_report(self, record: SweepRecord, stopped_by: str | None) -> None:
        if stopped_by is not None:  # after the last launch, before anything could be interrupted
            raise KeyboardInterrupt(stopped_by)
        from sweep.report.write import write_report  # noqa: PLC0415 - matplotlib, once

        write_report(record, self._directory, engine_of(record.experiment.engine).count)
