"""Plain HTTP calls to the server on this machine, and what network trouble is called."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from dataclasses import dataclass
from typing import Any, List, Optional

from sweep.agent import wire

HOST = "127.0.0.1"
"""Servers listen on loopback only."""


@dataclass(frozen=True)
class Reply:
    """What came back. `status` None: no answer; then `error` is a short class of error."""

    status: Optional[int]
    body: bytes
    error: Optional[str]


def call(port: int, call: wire.HttpCall, timeout_s: float) -> Reply:
    """Make one request on a connection of its own; never raises for network trouble.

    `timeout_s` bounds the whole call, a body that trickles included. An answer of any status is
    a reply without error unless its body did not arrive whole.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    status: Optional[int] = None
    late = threading.Event()
    socks: List[socket.socket] = []

    def cut() -> None:
        late.set()
        for sock in socks:
            shut(sock)

    timer = threading.Timer(timeout_s, cut)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        socks.append(connection.sock)  # the connection forgets it before the body is read
        body = None if call.body is None else json.dumps(call.body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(call.method, call.path, body=body, headers=headers)
        response = connection.getresponse()
        status = response.status
        payload = response.read()
    except (OSError, http.client.HTTPException) as trouble:
        return Reply(status, b"", "timeout" if late.is_set() else error_class(trouble))
    finally:
        timer.cancel()
        connection.close()
    return Reply(status, payload, "timeout" if late.is_set() else None)


def shut(sock: socket.socket) -> None:
    """End a connection from another thread: whoever is blocked on it wakes at once."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def error_class(trouble: Exception) -> str:
    """Name network trouble in two words, for records and for counting."""
    if isinstance(trouble, ConnectionRefusedError):
        return "connection refused"
    if isinstance(trouble, (http.client.RemoteDisconnected, http.client.IncompleteRead)):
        return "connection closed"
    if isinstance(trouble, (ConnectionResetError, BrokenPipeError)):
        return "connection reset"
    if isinstance(trouble, (socket.timeout, TimeoutError)):
        return "timeout"
    if isinstance(trouble, http.client.HTTPException):
        return "bad http"
    return "network error"


def lookup(data: Any, path: wire.KeyPath) -> Any:
    """Follow keys and indices into a JSON value; None when the path leads nowhere."""
    for key in path:
        if isinstance(data, dict):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and -len(data) <= key < len(data):
            data = data[key]
        else:
            return None
    return data
