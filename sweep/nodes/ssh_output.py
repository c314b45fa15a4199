"""The output of a command on an SSH channel: both streams together, bounded in time and size."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import paramiko

_LIMIT = 16 * 1024 * 1024
_LINGER_S = 1.0
"""How long output of a command that has ended may still arrive."""
_LOOK_S = 0.1


class OutputError(Exception):
    """The command took too long or wrote too much; the text says which."""


class Output:
    """What a command wrote so far."""

    def __init__(self, channel: paramiko.Channel, heard: Callable[[], None]) -> None:
        self._channel = channel
        self._heard = heard
        self.stdout = bytearray()
        self.stderr = bytearray()

    def drain(self, timeout_s: float) -> None:
        """Take both streams until the command has ended, whoever else still holds them.

        One stream read after the other would block a command that fills the other one.
        """
        channel, look_s = self._channel, min(_LOOK_S, timeout_s)
        readable = select.poll()
        readable.register(channel.fileno(), select.POLLIN)
        quiet_s = time.monotonic()
        until_s = quiet_s + timeout_s
        while True:
            if channel.eof_received:
                channel.status_event.wait(look_s)
            else:
                readable.poll(1000 * look_s)
            exited, closed = channel.exit_status_ready(), channel.closed
            now_s = time.monotonic()
            if self._take():
                quiet_s = now_s
            elif closed or (exited and (channel.eof_received or now_s - quiet_s > _LINGER_S)):
                return
            if now_s > until_s and not exited:
                raise OutputError(f"did not end within {timeout_s:g} s")

    def _take(self) -> bool:
        """Take what is there; returns whether there was anything."""
        before = len(self.stdout) + len(self.stderr)
        while self._channel.recv_ready():
            self.stdout += self._channel.recv(1 << 16)
        while self._channel.recv_stderr_ready():
            self.stderr += self._channel.recv_stderr(1 << 16)
        if max(len(self.stdout), len(self.stderr)) > _LIMIT:
            raise OutputError(f"wrote more than {_LIMIT >> 20} MiB")
        if len(self.stdout) + len(self.stderr) == before:
            return False
        self._heard()
        return True
