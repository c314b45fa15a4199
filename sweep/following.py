"""Following a driver on a terminal: progress, and what Ctrl-C and SIGTERM mean meanwhile."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sweep import app, views
from sweep.model.errors import InterruptedSweep, SweepError
from sweep.report import live, terminal
from sweep.store.reader import RunRow

_FULL_BYTES = 1 << 20


class Signals:
    """Remembers SIGINT and SIGTERM, so that neither interrupts anything half-way."""

    def __init__(self) -> None:
        self._caught: list[str] = []
        self._asking = False

    @contextmanager
    def caught(self) -> Iterator[Signals]:
        """Catch both signals inside the block."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._catch) for number in numbers]
        try:
            yield self
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _catch(self, number: int, _frame: object) -> None:
        if self._asking:
            raise InterruptedSweep(signal.Signals(number).name)
        self._caught.append(signal.Signals(number).name)

    def pending(self) -> bool:
        """Whether a signal came that was not taken yet."""
        return bool(self._caught)

    def take(self) -> str:
        """Return the name of the oldest signal, and forget it."""
        return self._caught.pop(0)

    def ask(self, question: str) -> str:
        """Ask on the terminal; a signal, or the end of the input, is an empty answer."""
        self._asking = True
        try:
            return input(question).strip().lower()
        except (InterruptedSweep, EOFError):
            return ""
        finally:
            self._asking = False


def drive(prepared: app.Prepared, environment: dict[str, str], *, detach: bool, keep: bool) -> int:
    """Start a driver and follow it to its end, or let it go; return the exit code.

    SIGTERM, and Ctrl-C without a terminal, stop the sweep; Ctrl-C on a terminal asks.
    """
    directory = prepared.directory
    with Signals().caught() as signals:  # before the start: a signal must never miss the driver
        pid = app.start_driver(prepared, environment, keep_going=keep)
        if detach:
            click.echo(f"{directory.name} runs in the background (driver pid {pid})")
            click.echo(f"follow it: sweep status --watch {directory.name}")
            return 0
        left, run = _follow(directory, pid, signals)
    if left:
        click.echo(f"{directory.name} goes on in the background (driver pid {pid})")
        return InterruptedSweep.exit_code
    return _tell(directory, pid, run)


def _follow(directory: Path, pid: int, signals: Signals) -> tuple[bool, RunRow | None]:
    """Return whether the user left the driver alone, and its run."""
    stopping = False
    with live.view() as view:
        while True:
            run = app.follow(directory, pid, view.show, signals.pending)
            if not signals.pending():
                return False, run
            view.pause()
            name = signals.take()
            on_terminal = name == signal.SIGINT.name and sys.stdin.isatty()
            if on_terminal and not stopping and _leave_running(signals):
                return True, run
            again = "still stopping" if stopping else "stopping"
            click.echo(f"{again}: {_what_stops(directory)}", err=True)
            app.signal_driver(pid, signal.Signals[name])
            stopping = True


def _what_stops(directory: Path) -> str:
    if views.progress(directory).now:
        return "the server is stopped and the node proven clean"
    return "no server runs, and what was measured is kept"


def _leave_running(signals: Signals) -> bool:
    """Ask what Ctrl-C means; a second Ctrl-C at the question means stop."""
    question = "\n[s]top the sweep, or leave it running in the [b]ackground? [s/b] "
    return signals.ask(question).startswith("b")


def _tell(directory: Path, pid: int, run: RunRow | None) -> int:
    """Say how a driver ended; raises SweepError when it ended without saying so itself."""
    if run is None or run.exit_code is None:
        said = app.driver_log_tail(directory)
        last = f"; it last wrote:\n{said}" if said else " without a word"
        full = shutil.disk_usage(directory).free < _FULL_BYTES
        why = f"; the disk of {directory} is full" if full else ""
        raise SweepError(
            f"the driver (pid {pid}) died, see {directory}/driver.log{last}{why}",
            hint=f"{'free space there; ' if full else ''}what was recorded is kept, and what runs "
            f"on a node goes on; go on with `sweep resume {directory.name}`",
        )
    terminal.show_result(*views.result(directory), views.written_report(directory, run))
    if run.note:
        click.echo(f"note: {run.note}", err=True)
    if run.exit_code and not views.is_complete(directory):
        click.echo(f"go on with: sweep resume {directory.name}", err=True)
    return run.exit_code
