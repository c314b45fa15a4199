"""A guard shuts connections in time, for the reason that came first."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sweep.agent.guard import Guard, guarding

FAR_S = 1e9


@pytest.fixture(name="pair")
def connected_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection."""
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def test_deadline_wakes_a_reader(pair: tuple[socket.socket, socket.socket]) -> None:
    """A reader that is blocked past its deadline reads the end of the stream."""
    with guarding(threading.Event()) as guard:
        with guard.watch(pair[0], time.monotonic() + 0.05) as watched:
            assert pair[0].recv(1) == b""
        assert (watched.cut, guard.halted, guard.is_over) == ("timeout", None, False)


def test_stop_wakes_a_reader(pair: tuple[socket.socket, socket.socket]) -> None:
    """Once stop is set, a blocked reader wakes."""
    stop = threading.Event()
    with guarding(stop) as guard, guard.watch(pair[0], FAR_S) as watched:
        stop.set()
        assert pair[0].recv(1) == b""
        assert (watched.cut, guard.is_over) == ("stopped", True)


def test_connection_that_comes_after_a_halt_is_shut(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Nothing is sent into a pass that is over; the first reason stays."""
    guard = Guard(threading.Event())
    guard.halt("stalled")
    guard.halt("stopped")
    with guard.watch(pair[0], FAR_S) as watched:
        assert pair[0].recv(1) == b""
    assert (watched.cut, guard.is_over) == ("stalled", True)


def test_connection_that_ended_in_time_is_left_alone(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """What is no longer watched is not shut."""
    guard = Guard(threading.Event())
    with guard.watch(pair[0], FAR_S) as watched:
        pass
    guard.halt("stopped")
    pair[1].sendall(b"x")
    assert pair[0].recv(1) == b"x"
    assert watched.cut is None
