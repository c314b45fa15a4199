"""One SSH connection to a node, through its jump hosts: files, commands, and signs of life.

A link lives once: when it is lost it stays lost, everything that waits on it ends with
LinkLostError, and a new one is made by its owner.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import paramiko
from paramiko.sftp import SFTPError

from sweep.model.errors import NodeError
from sweep.nodes.host_keys import HostKey
from sweep.nodes.ssh_handshake import greet
from sweep.nodes.ssh_login import LinkLostError, UnknownNameError
from sweep.nodes.ssh_output import Output, OutputError
from sweep.nodes.ssh_route import Hop
from sweep.nodes.ssh_socket import connect
from sweep.ports import Completed

_T = TypeVar("_T")

# paramiko logs every lost connection with a traceback; sweep says it once, in its own words.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_LOST = (paramiko.SSHException, EOFError, OSError)
_WAKE_S = 0.02
_SLOT_WAIT_S = 3.0
"""A session that was closed is counted by the server for a moment more."""


@dataclass(frozen=True)
class Deadlines:
    """When a silent connection counts as lost: after `ping_every_s` + `ping_s` at most.

    `answer_s`: how long the node's file system may take while the connection itself answers.
    """

    ping_every_s: float = 5.0
    ping_s: float = 5.0
    answer_s: float = 60.0


class Link:
    """A connection. `close` may be called from any thread and ends whatever waits."""

    def __init__(self, name: str, deadlines: Deadlines) -> None:
        self._name = name
        self._deadlines = deadlines
        self._lock = threading.Lock()
        self._lost: str | None = None
        self._ended = threading.Event()
        self._socket: socket.socket | None = None
        self._transports: list[paramiko.Transport] = []
        self._sftp: paramiko.SFTPClient | None = None
        self._sftp_lock = threading.Lock()
        self._exec_lock = threading.Lock()
        self._requesting: set[paramiko.Channel] = set()
        self._heard = 0

    # -- opening and ending --------------------------------------------------------------------

    def open(self, hops: Sequence[Hop], default_identities: Sequence[str]) -> None:
        """Connect through each hop; raises LinkLostError, or NodeError when a hop refuses."""
        try:
            for hop in hops:
                greet(self._transport(hop), hop, default_identities)
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._watch, name=f"ssh {self._name}", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether nothing is known against it."""
        return not self._ended.is_set() and self._transports[-1].is_active()

    @property
    def host_key(self) -> HostKey:
        """The key that the node showed; raises LinkLostError."""
        try:
            shown = self._transports[-1].get_remote_server_key()
        except paramiko.SSHException as error:
            raise LinkLostError(f"the connection to {self._name} is gone: {error}") from error
        return HostKey(shown.get_name(), shown.asbytes())

    def close(self, why: str = "closed") -> None:
        """End the connection; everything that waits on it fails at once."""
        with self._lock:
            self._lost = self._lost or why
            self._ended.set()
            sock, transports = self._socket, self._transports[::-1]
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for transport in transports:
            with contextlib.suppress(*_LOST):  # said on the way out, through a jump host
                transport.close()
        if sock is not None:
            sock.close()

    def _transport(self, hop: Hop) -> paramiko.Transport:
        """Return a connection to a hop, through the one before it, that says nothing yet."""
        try:
            if self._transports:
                way: socket.socket | paramiko.Channel = self._transports[-1].open_channel(
                    "direct-tcpip",
                    (hop.hostname, hop.port),
                    ("127.0.0.1", 0),
                    timeout=hop.connect_timeout_s,
                )
            else:
                way = connect(hop, self._began)
            transport = paramiko.Transport(way)
        except socket.gaierror as error:
            raise UnknownNameError(
                f"{hop.hostname} does not resolve: it is no Host of the SSH config and no name "
                f"that this machine knows ({error.strerror})"
            ) from error
        except _LOST as error:
            raise LinkLostError(f"no connection to {_named(hop)}: {_said(error)}") from error
        with self._lock:
            self._transports.append(transport)
            ended = self._ended.is_set()
        if ended:
            transport.close()
            raise LinkLostError("closed")
        return transport

    def _began(self, sock: socket.socket) -> None:
        """Note a socket before it connects, so that `close` can interrupt that."""
        with self._lock:
            self._socket = sock
            if self._ended.is_set():
                sock.close()

    # -- signs of life -------------------------------------------------------------------------

    def heard(self) -> None:
        """Note that the node sent something: a busy connection need not answer pings in time."""
        self._heard += 1

    def _watch(self) -> None:
        """Ping until the link ends; a ping without an answer ends it."""
        while not self._ended.wait(self._deadlines.ping_every_s):
            before = self._heard
            try:
                answered = self._ping()
            except _LOST as error:
                self.close(f"the connection broke: {_said(error)}")
                break
            if not answered and self._heard == before:
                self.close(f"no answer to a ping for {self._deadlines.ping_s:g} s")
                break
        self._wake_requests()

    def _request(self, channel: paramiko.Channel, send: Callable[[], None]) -> None:
        """Send a request on a channel; it ends when the link does, even if it began just then."""
        with self._lock:
            if self._ended.is_set():
                raise EOFError("the connection ended")
            self._requesting.add(channel)
        try:
            send()
        finally:
            with self._lock:
                self._requesting.discard(channel)

    def _wake_requests(self) -> None:
        """End requests for whose answers paramiko waits on channels that have ended before."""
        while True:
            with self._lock:
                waiting = list(self._requesting)
            if not waiting:
                return
            for channel in waiting:
                channel.event.set()
            time.sleep(_WAKE_S)

    def _ping(self) -> bool:
        """Open a channel; a refusal is an answer as well."""
        try:
            channel = self._opened(self._deadlines.ping_s)
        except TimeoutError:
            return False
        if channel is not None:
            channel.close()
        return True

    def _opened(self, timeout_s: float) -> paramiko.Channel | None:
        """Return a new session channel; None: the server refused it. TimeoutError: no answer."""
        transport, until_s = self._transports[-1], time.monotonic() + timeout_s
        while True:
            try:
                return transport.open_session(timeout=until_s - time.monotonic())
            except paramiko.ChannelException:
                return None
            except paramiko.SSHException as error:
                if not transport.is_active():
                    raise
                if time.monotonic() >= until_s:
                    raise TimeoutError(f"no answer for {timeout_s:g} s") from error
                # Another thread got this one's error, or the connection is just ending: ask again.
                time.sleep(_WAKE_S)

    # -- files ---------------------------------------------------------------------------------

    def files(self, act: Callable[[paramiko.SFTPClient], _T]) -> _T:
        """Do something with the node's files, one caller at a time.

        OSError is the node's answer about a file; LinkLostError says that there was none.
        """
        with self._sftp_lock:
            sftp = self._sftp_client()
            try:
                return act(sftp)
            except TimeoutError as error:
                self.close(f"its file system did not answer for {self._deadlines.answer_s:g} s")
                raise self._loss(error) from error
            except (paramiko.SSHException, EOFError, SFTPError) as error:
                self.close(_said(error))
                raise self._loss(error) from error
            except OSError as error:
                if self.alive and not sftp.sock.closed:
                    raise
                raise self._loss(error) from error

    def _sftp_client(self) -> paramiko.SFTPClient:
        if self._sftp is not None and not self._sftp.sock.closed:
            return self._sftp
        channel = self._session()
        try:
            channel.settimeout(self._deadlines.answer_s)
            self._request(channel, partial(channel.invoke_subsystem, "sftp"))
            self._sftp = paramiko.SFTPClient(channel)
        except (*_LOST, SFTPError) as error:
            if isinstance(error, TimeoutError) or not self._survives():
                raise self._loss(error) from error
            _let_go(channel)
            raise NodeError(
                f"{self._name}: the node offers no file transfer (SFTP): {_said(error)}",
                hint="sshd_config needs `Subsystem sftp internal-sftp`, and start-up files of "
                "the shell must print nothing",
            ) from error
        return self._sftp

    # -- commands ------------------------------------------------------------------------------

    def execute(self, command: bytes, what: str, timeout_s: float) -> Completed:
        """Run a line of the login shell, one caller at a time, with empty standard input.

        LinkLostError: it was not started. returncode None: it was, and the link broke.
        """
        with self._exec_lock:
            channel = self._session()
            try:
                return self._executed(channel, command, what, timeout_s)
            finally:
                _let_go(channel)

    def _executed(
        self, channel: paramiko.Channel, command: bytes, what: str, timeout_s: float
    ) -> Completed:
        output = Output(channel, self.heard)
        status = -1
        try:
            self._request(channel, partial(channel.exec_command, command))
            channel.shutdown_write()
            output.drain(timeout_s)
            status = channel.recv_exit_status()
        except OutputError as error:
            raise NodeError(
                f"{self._name}: {what} {error}", hint="it may still run on the node"
            ) from error
        except _LOST as error:
            if self._survives():
                raise NodeError(f"{self._name}: cannot run {what}: {_said(error)}") from error
        if status < 0 and channel.eof_received and self._survives():
            raise NodeError(f"{self._name}: {what} was ended by a signal on the node")
        returncode = None if status < 0 else status
        return Completed(returncode, bytes(output.stdout), bytes(output.stderr))

    def _survives(self) -> bool:
        """Whether the link still answers: what failed on it then failed by itself.

        `alive` may say so for a moment longer, while paramiko ends the channels one by one.
        """
        try:
            return self.alive and self._ping()
        except _LOST:
            return False

    def _session(self) -> paramiko.Channel:
        """Open a session channel, waiting for a slot that an earlier one still holds."""
        until_s, pause_s = time.monotonic() + _SLOT_WAIT_S, 0.01
        while True:
            try:
                channel = self._opened(self._deadlines.answer_s)
            except _LOST as error:
                raise self._loss(error) from error
            if channel is not None:
                return channel
            if time.monotonic() > until_s:
                raise NodeError(
                    f"{self._name}: the SSH server opens no further session",
                    hint="sshd_config needs `MaxSessions 2` or more",
                )
            time.sleep(pause_s)
            pause_s *= 1.5

    def _loss(self, error: BaseException) -> LinkLostError:
        """Close, and return the loss with the first cause known."""
        self.close(f"the connection broke: {_said(error)}")
        return LinkLostError(self._lost or _said(error))


def _let_go(channel: paramiko.Channel) -> None:
    with contextlib.suppress(*_LOST):  # its end is sent through a connection that may be broken
        channel.close()


def _named(hop: Hop) -> str:
    own = hop.alias == hop.hostname
    return hop.address if own else f"{hop.alias}, {hop.address}"


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
