"""Reading /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from fakes.launching import wait_for

from sweep.agent import procs

TAIL = b" 10 20 30 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 98765 1000 200\n"


def test_names_with_blanks_and_parentheses() -> None:
    """The name ends at the last parenthesis, whatever is in it."""
    process = procs.parse_stat(b"42 (a) b) S (c) R" + TAIL)
    assert process.name == "a) b) S (c"
    assert (process.pid, process.state, process.ppid, process.group) == (42, "R", 10, 20)
    assert (process.session, process.cpu_ticks, process.start_ticks) == (30, 200, 98765)


def test_a_zombie_is_dead() -> None:
    """An ended child that nobody has waited for does not live."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    started = procs.read(child.pid)
    assert started is not None
    wait_for(lambda: (found := procs.read(child.pid)) and found.state == "Z")
    assert not procs.alive(started.identity)
    child.wait()
    assert procs.read(child.pid) is None


def test_identity_is_pid_and_start() -> None:
    """Another process with our pid would not be us."""
    own = procs.read(os.getpid())
    assert own is not None
    assert procs.alive(own.identity)
    assert not procs.alive((own.pid, own.start_ticks + 1))


def test_descendants_are_found_over_generations() -> None:
    """Children of children count, others do not."""

    def process(pid: int, ppid: int) -> procs.Process:
        return procs.Process(pid, ppid, 1, 1, "S", 5, 0, "x")

    everyone = {p.pid: p for p in (process(2, 1), process(3, 2), process(4, 3), process(5, 1))}
    assert sorted(p.pid for p in procs.descendants(everyone, 2)) == [3, 4]


def test_the_nonce_matches_whole_entries_only() -> None:
    """A longer value, and a name that ends alike, are somebody else's."""
    environment = {"SWEEP_NONCE": "abc", "OTHER_SWEEP_NONCE": "zz"}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **environment}) as child:
        wait_for(lambda: procs.carries(child.pid, b"SWEEP_NONCE=abc"))
        assert not procs.carries(child.pid, b"SWEEP_NONCE=ab")
        assert not procs.carries(child.pid, b"SWEEP_NONCE=abcd")
        assert not procs.carries(child.pid, b"SWEEP_NONCE=zz")
        child.kill()


def test_who_listens_on_a_port() -> None:
    """Listeners on either protocol are found with the process that holds them."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((host, 0), family=family) as listener:
            port = listener.getsockname()[1]
            inodes = procs.listening_sockets(port)
            assert procs.holders(inodes, [1, os.getpid()]) == [os.getpid()]
        assert procs.listening_sockets(port) == set()
