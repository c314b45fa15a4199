"""What can be made to go wrong, and the lines with which a real server goes down."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

VARIABLE = "SIMULATOR_FAULTS"
"""Holds a JSON object with fields of Faults; laid over those of the calibration."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong. Counts of requests count generation requests, from 1."""

    # Start-up and end
    fail: Optional[str] = None
    """A key of FAILURES: fails as a real server does, at that step of the load."""
    exit_at_s: Optional[float] = None
    exit_code: int = 1
    exit_message: str = ""
    hang_load: bool = False
    """Silent for ever while the weights are read."""
    port_late_s: float = 0.0
    """The port opens so much after the load."""
    unready_s: float = 0.0
    """503 for so long after the port opened."""
    ignore_term: bool = False
    grandchild: Optional[str] = None
    """same-group or own-session: a process that ignores SIGTERM and keeps the port."""
    log_flood_bytes: int = 0
    dump: Optional[str] = None
    """File that gets argv, environment and pid as JSON."""
    # Requests
    hang_generate: bool = False
    """Generation never answers, health does."""
    stall_after: Optional[int] = None
    error_every: int = 0
    """Each kth request is answered with 500."""
    die_in_request: Optional[int] = None
    first_request_delay_s: float = 0.0
    chunk_tokens: int = 1
    """Tokens in a chunk at least, whatever a cycle yields."""
    no_usage: bool = False
    """Answers carry no token counts."""
    no_speculation: bool = False
    """The server was asked to speculate and decodes without."""
    no_pin: bool = False
    """The server holds several step counts, and requests that ask for one are not heard."""
    changed: Dict[str, Any] = field(default_factory=dict)
    """Arguments that the server silently replaces."""
    lifetime_cycles: int = 0
    """Cycles of accept length 3.9 that the server's counters start with."""
    flush_busy: int = 0
    """400 for the first n flushes; -1: for all."""


@dataclass(frozen=True)
class Death:
    """At which step of the load a server ends, with which exit code and last lines."""

    step: str
    code: int
    lines: Tuple[str, ...]


_LAUNCHER = "Received sigquit from a child process. It usually means the child failed."
FAILURES: Dict[str, Death] = {
    "bad_args": Death(
        "start",
        2,
        (
            "usage: launch_server.py [-h] --model-path MODEL_PATH",
            "launch_server.py: error: unrecognized arguments: --no-such-argument",
        ),
    ),
    "missing_file": Death(
        "start",
        1,
        (
            "Traceback (most recent call last):",
            "OSError: /models/target does not appear to have a file named config.json.",
        ),
    ),
    "port": Death(
        "start",
        1,
        ("[Errno 98] error while attempting to bind on address: address already in use",),
    ),
    "nccl": Death(
        "distributed",
        -9,
        (
            "Scheduler hit an exception: Traceback (most recent call last):",
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690",
            _LAUNCHER,
        ),
    ),
    "oom": Death(
        "weights",
        -9,
        (
            "Scheduler hit an exception: Traceback (most recent call last):",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.62 GiB.",
            _LAUNCHER,
        ),
    ),
    "memory_fraction": Death(
        "cache",
        -9,
        (
            "Scheduler hit an exception: Traceback (most recent call last):",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            _LAUNCHER,
        ),
    ),
    "graph_capture": Death(
        "graphs",
        -9,
        (
            "Scheduler hit an exception: Traceback (most recent call last):",
            "Exception: Capture cuda graph failed: selected index k out of range",
            _LAUNCHER,
        ),
    ),
}


def parse(given: Dict[str, Any], text: Optional[str]) -> Faults:
    """Return the calibration's faults with those of the environment over them.

    Raises ValueError or TypeError when they are none.
    """
    values = {**given, **(json.loads(text) if text else {})}
    faults = Faults(**values)
    if faults.fail is not None and faults.fail not in FAILURES:
        raise ValueError("fail: one of %s" % ", ".join(FAILURES))
    return faults


def die(code: int, *lines: str) -> None:
    """End the process at once with these last lines; a negative code is a signal."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def arrange(faults: Faults) -> None:
    """Set up what does not depend on the load."""
    if faults.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if faults.dump is not None:
        _dump(faults.dump)
    if faults.exit_at_s is not None:
        lines = (faults.exit_message,) if faults.exit_message else ()
        timer = threading.Timer(faults.exit_at_s, die, (faults.exit_code, *lines))
        timer.daemon = True
        timer.start()


def on_listening(faults: Faults) -> None:
    """Set up what needs the open port."""
    if faults.grandchild is not None:
        _leave_grandchild(faults.grandchild)
    if faults.log_flood_bytes:
        threading.Thread(target=_flood, args=(faults.log_flood_bytes,), daemon=True).start()


def _dump(path: str) -> None:
    value = {"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid()}
    with open(path + ".part", "w", encoding="utf-8") as stream:
        json.dump(value, stream)
    os.replace(path + ".part", path)


def _leave_grandchild(how: str) -> None:
    pid = os.fork()
    if pid:
        print("grandchild %d" % pid, flush=True)
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "own-session":
        os.setsid()
    while True:
        signal.pause()


def _flood(size: int) -> None:
    line = b"x" * 99 + b"\n"
    for _ in range(size // len(line)):
        os.write(1, line)
