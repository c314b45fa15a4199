"""The verb `run`: checks, detaches, and runs the launch in a process of its own."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from dataclasses import asdict
from typing import Any, Dict

from sweep.agent import procs, wire
from sweep.agent.attach import AGENT_LOG_FILE, LOCK_FILE, read_ident
from sweep.agent.journal import read_text, write_whole

_OTHER_START_S = 10.0
"""How long another `run` may take from its lock to its agent.json."""

_MANY = 4096


def open_lock(directory: str) -> int:
    """Open the file whose lock a launch's agent holds while it lives."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    return os.open(os.path.join(directory, LOCK_FILE), flags, 0o600)


def _already(directory: str) -> Dict[str, Any]:
    ident = read_ident(directory)
    return {"ident": None if ident is None else asdict(ident), "already": True}


def run(directory: str) -> Dict[str, Any]:
    """Start the agent of a launch directory unless it ever had one. Raises for a bad launch.json.

    Returns its identity, and whether it was there already.
    """
    text = read_text(os.path.join(directory, wire.LAUNCH_FILE))
    if text is None:
        raise FileNotFoundError("%s holds no %s" % (directory, wire.LAUNCH_FILE))
    doc = wire.decode_launch(text)
    if not 0 <= doc.port_at < len(doc.argv):
        raise ValueError("port_at %d lies outside argv" % doc.port_at)
    lock = open_lock(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _wait_for_other(directory)
    names = (wire.OUTCOME_FILE, wire.IDENT_FILE)
    if any(os.path.exists(os.path.join(directory, name)) for name in names):
        return _already(directory)
    return _detach(directory, doc, lock)


def _wait_for_other(directory: str) -> Dict[str, Any]:
    until_s = time.monotonic() + _OTHER_START_S
    while read_ident(directory) is None and time.monotonic() < until_s:
        time.sleep(0.02)
    return _already(directory)


def _detach(directory: str, doc: wire.LaunchDoc, lock: int) -> Dict[str, Any]:
    """Fork twice: the agent belongs to no terminal and to nobody's process group."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                os.close(told)
                _become_agent(directory, doc, lock, tell)
        finally:
            os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    with os.fdopen(told, "rb") as stream:
        answer = stream.read()
    if answer != b"running":
        raise OSError("the agent did not start; see %s/%s" % (directory, AGENT_LOG_FILE))
    ident = read_ident(directory)
    return {"ident": None if ident is None else asdict(ident), "already": False}


def _become_agent(directory: str, doc: wire.LaunchDoc, lock: int, tell: int) -> None:
    """Run the launch in this process, to its end."""
    try:
        _redirect(directory, {lock, tell})
        own = procs.read(os.getpid())
        assert own is not None
        ident = wire.AgentIdent(own.pid, own.start_ticks, procs.boot_id())
        path = os.path.join(directory, wire.IDENT_FILE)
        write_whole(path, wire.encode(ident).encode() + b"\n")
        os.write(tell, b"running")
        os.close(tell)
        _run(directory, doc, ident)
    except BaseException:  # noqa: BLE001 - nobody above could tell; agent.log is read by people
        import traceback  # noqa: PLC0415 - start-up time counts

        traceback.print_exc()
    finally:
        os._exit(0)


def _redirect(directory: str, kept: set[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    log = os.open(os.path.join(directory, AGENT_LOG_FILE), flags, 0o600)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(log, 2)
    # What ssh or a Ray worker left open would keep their ends of it waiting for the agent.
    for descriptor in range(3, _MANY):
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                continue


def _run(directory: str, doc: wire.LaunchDoc, ident: wire.AgentIdent) -> None:
    from sweep.agent.launch import Launch  # noqa: PLC0415 - only the agent itself needs all this
    from sweep.agent.server import become_subreaper  # noqa: PLC0415

    become_subreaper()
    launch = Launch(directory, doc, ident)
    _forward_signals(launch.ask_to_stop)
    launch.run()


def _forward_signals(ask_to_stop: Any) -> None:
    """Have a thread answer SIGTERM and SIGINT: a handler could interrupt the holder of a lock."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def answer() -> None:
        while True:
            for number in os.read(reading, 64):
                if number in (signal.SIGTERM, signal.SIGINT):
                    ask_to_stop(number)

    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=answer, name="signals", daemon=True).start()
