"""Ctrl-C, SIGTERM and cancel end a sweep in good order: the server is gone, nothing is held, the
database is whole, and resume completes the sweep."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from fakes.machine import Machine, eventually, finished, gone, kill

from sweep.agent import procs

INTERRUPTED = 130
QUESTION = b"[s/b]"


def require_stopped(machine: Machine, server: procs.Identity, *, ray_directories: int = 0) -> None:
    """The launch is interrupted, its server and everything else is gone, the database whole."""
    assert not procs.alive(server)
    machine.require_quiet()
    with machine.database() as database:
        attempt = database.attempts()[-1]
        states = {state.value for state, _, _ in database.trial_states().values()}
    assert attempt.state == "interrupted"
    assert "interrupted" in states
    assert states <= {"interrupted", "not_run", "ok"}
    assert machine.last_run().exit_code == INTERRUPTED
    for number in [n for n in machine.launches() if n]:
        assert machine.events(number) == sorted(machine.events(number), key=lambda e: e["n"])


@pytest.mark.ray
def test_signals_stop_the_sweep_in_good_order(machine: Machine) -> None:
    """Each way to be asked to stop ends alike, in a load and in a window, and costs no result."""
    file = machine.experiment([1, 2])
    machine.serve_with("--rate 2000")
    assert machine.inline_to_end("submit", file) == 0
    expected = machine.outcome()
    load, window = "--rate 2000 --unready 60", "--rate 25"  # a window of 6 s
    arguments: tuple[object, ...] = ("submit", file, "--new")
    for options, phase, numbers, whom in (
        (load, "load", [signal.SIGINT], "verb"),
        (window, "measure", [signal.SIGINT, signal.SIGINT], "verb"),
        (window, "measure", [signal.SIGTERM], "verb"),
        (load, "load", [signal.SIGTERM], "driver"),
    ):
        machine.serve_with(options)
        following = machine.start(*arguments)
        eventually(lambda: len(machine.sweeps()) == 2)
        eventually(partial(started_again, machine))
        machine.wait_for_phase(1, phase)
        server = machine.server(1)
        for number in numbers:
            os.kill(following.pid if whom == "verb" else machine.driver()[0], number)
        ended = finished(following)
        assert ended.code == INTERRUPTED, ended.text
        assert f"sweep resume {machine.directory.name}" in ended.text
        require_stopped(machine, server)
        name = signal.Signals(numbers[0]).name
        assert machine.last_run().note == f"the sweep was stopped ({name})"
        arguments = ("resume",)
    machine.serve_with("--rate 2000")
    assert machine.inline_to_end("resume") == 0
    assert machine.outcome() == expected
    machine.require_quiet()


def started_again(machine: Machine) -> bool:
    """Whether a living driver has an attempt of its own."""
    run, attempts = running(machine), machine.attempts(1)
    return run is not None and bool(attempts) and attempts[-1].run == run


def running(machine: Machine) -> int | None:
    """Number of the run whose driver lives, None: no driver has begun."""
    with machine.database() as database:
        runs = database.runs()
    return runs[-1].run if runs and runs[-1].exit_code is None else None


@pytest.mark.ray
def test_a_stop_while_the_report_is_written_costs_no_result(machine: Machine) -> None:
    """The run ends at once and says what came; every trial is there, and `view` writes what is
    missing."""
    following = machine.start("submit", machine.experiment([1]))
    machine.wait_for_sweep()
    eventually(lambda: machine.last_run().stage == "drawing plots and report")
    os.kill(following.pid, signal.SIGINT)
    ended = finished(following)
    assert ended.code == INTERRUPTED, ended.text
    note = machine.last_run().note
    assert note is not None
    assert note.startswith("stopped (SIGINT) while the report was written")
    assert note in ended.text
    assert "go on with" not in ended.text
    assert "report:" not in ended.text
    assert machine.states() == {"ok": 1}
    machine.require_quiet()
    report = machine.directory / "report.html"
    assert not report.exists()
    assert machine.run("view", "--no-open").code == 0
    assert report.exists()


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """A pseudo-terminal: (our end, the program's end)."""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def start_on_terminal(machine: Machine, theirs: int, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a verb with a terminal of its own, as a shell does in the foreground."""
    return machine.start(
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )


def read_until(ours: int, text: bytes) -> None:
    """Read what the program prints until a text is there."""
    seen = b""
    while text not in seen:
        seen += os.read(ours, 4096)


@pytest.mark.ray
def test_ctrl_c_on_a_terminal_asks(machine: Machine) -> None:
    """`s` stops the sweep; `b` leaves it in the background, where it completes."""
    file = machine.experiment([1, 2])
    machine.serve_with("--rate 2000", s1="--rate 25")  # a window of 6 s
    with terminal() as (ours, theirs):
        following = start_on_terminal(machine, theirs, "submit", file)
        machine.wait_for_sweep()
        machine.wait_for_phase(1, "measure")
        server = machine.server(1)
        os.write(ours, b"\x03")
        read_until(ours, QUESTION)
        assert procs.alive(server)
        os.write(ours, b"s\n")
        with draining(ours):
            assert following.wait(60) == INTERRUPTED
        require_stopped(machine, server)
    with terminal() as (ours, theirs):
        following = start_on_terminal(machine, theirs, "resume")
        eventually(lambda: running(machine) and len(machine.attempts(1)) == 2)
        machine.wait_for_phase(1, "measure")
        server = machine.server(1)
        os.write(ours, b"\x03")
        read_until(ours, QUESTION)
        os.write(ours, b"b\n")
        with draining(ours):
            assert following.wait(60) == INTERRUPTED
    # The terminal is gone, and the driver goes on.
    assert procs.alive(server)
    eventually(lambda: machine.last_run().exit_code is not None, 120)
    assert machine.last_run().exit_code == 0
    assert machine.states() == {"ok": 2}
    assert machine.attempts(1)[-1].attempt == 2
    machine.require_quiet()


@contextmanager
def draining(ours: int) -> Iterator[None]:
    """Keep reading what is printed, so that the program never waits for its terminal."""
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            if select.select([ours], [], [], 0.05)[0]:
                os.read(ours, 4096)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.ray
def test_detached_sweeps_are_shown_and_cancelled(machine: Machine) -> None:
    """`cancel` stops through the driver while it lives, and on the node itself when it is dead."""
    file = machine.experiment([1, 2])
    machine.serve_with("--rate 2000", s1="--rate 25")  # a window of 6 s
    started = machine.run("submit", file, "--detach")
    assert started.code == 0, started.text
    machine.wait_for_sweep()
    machine.wait_for_phase(1, "measure")
    shown = machine.run("status", "--json")
    status = json.loads(shown.text)
    assert status["driver_alive"] is True
    assert [now["phase"] for now in status["now"]] == ["measure"]
    refused = machine.run("resume")
    assert refused.code == 3
    assert f"driver pid {machine.driver()[0]}" in refused.text
    server = machine.server(1)
    cancelled = machine.run("cancel")
    assert cancelled.code == 0, cancelled.text
    require_stopped(machine, server)
    assert machine.run("resume", "--detach").code == 0
    eventually(lambda: running(machine) and len(machine.attempts(1)) == 2)
    machine.wait_for_phase(1, "measure")
    server = machine.server(1)
    driver = machine.driver()
    kill(driver)
    gone(driver)
    status = json.loads(machine.run("status", "--json").text)
    assert status["driver_alive"] is False
    assert status["driver"].startswith("dead since")
    assert procs.alive(server)
    cancelled = machine.run("cancel")
    assert cancelled.code == 0, cancelled.text
    require_stopped(machine, server)
    machine.serve_with("--rate 2000")
    ended = machine.run("resume")
    assert ended.code == 0, ended.text
    assert machine.states() == {"ok": 2}
    machine.require_quiet()
