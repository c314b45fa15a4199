"""The TCP connection below SSH: sends at once, and notices a peer that is gone in seconds."""

from __future__ import annotations

import socket
from collections.abc import Callable

from sweep.nodes.ssh_route import Hop

_OPTIONS = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 10_000,
}
"""In seconds, the last one in milliseconds."""


def connect(hop: Hop, began: Callable[[socket.socket], None]) -> socket.socket:
    """Return a connection to the first address of a hop that takes one, else raise OSError.

    `began` is given each socket before it connects; closing it there ends the attempt.
    """
    found = socket.getaddrinfo(hop.hostname, hop.port, hop.family, socket.SOCK_STREAM)
    failure = OSError("the name has no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        began(sock)
        try:
            _tune(sock)
            sock.settimeout(hop.connect_timeout_s)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        number = getattr(socket, name, None)  # macOS lacks some
        if number is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
