"""A port for the server: free now, and not the one a server used a moment ago."""

from __future__ import annotations

import fcntl
import os
import socket

from sweep.agent.claim import open_shared

_FIRST, _COUNT = 20000, 12000
"""Below the ports that Linux gives to outgoing connections (32768 and up)."""

_STEP = 8
"""Engines take ports next to the one they are given."""


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - nothing listens: bind only, to ask
        except OSError:
            return False
    return True


def _somewhere() -> int:
    """Return where to begin on a node that remembers no port: not where everyone else begins."""
    return _FIRST + os.getpid() % (_COUNT // _STEP) * _STEP


def pick(folder: str) -> int:
    """Return a free port, another one each time. Raises ClaimError, or OSError with none free.

    The last port given on this node is remembered beside the lock files: a new server on the
    port of one just killed meets its half-open connections.
    """
    descriptor = open_shared(os.path.join(folder, "sweep-port"))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        text = os.pread(descriptor, 16, 0).decode("ascii", "replace").strip()
        port = int(text) if text.isdigit() else _somewhere()
        for _ in range(_COUNT // _STEP):
            port = _FIRST + (port - _FIRST + _STEP) % _COUNT
            if _free(port):
                data = b"%d\n" % port
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))
                return port
    finally:
        os.close(descriptor)
    raise OSError("no free port between %d and %d" % (_FIRST, _FIRST + _COUNT - 1))
