"""Reading parts of files from SFTP servers that answer with less than was asked for."""

from __future__ import annotations

import errno
from typing import Any, Self, cast

import paramiko
import pytest
from paramiko.message import Message
from paramiko.sftp import CMD_DATA, CMD_STATUS

from sweep.nodes.ssh_files import BLOCK, read_file


class Stream:
    """An open file on the server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._at = 0
        self.handle = b"handle"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def seek(self, offset: int) -> None:
        """Where the next read begins."""
        self._at = offset

    def read(self, size: int) -> bytes:
        """As paramiko reads: until there is enough or the file ends."""
        if self._server.vanishes:
            self._server.there = False
            raise OSError("Failure")
        return self._server.data[self._at : self._at + size]

    def stat(self) -> Any:
        """The size."""
        attributes = paramiko.SFTPAttributes()
        attributes.st_size = self._server.claimed_size
        return attributes


class Server:
    """An SFTP session whose server answers requests at once with at most `most` bytes."""

    def __init__(self, data: bytes, most: int = BLOCK) -> None:
        self.data = data
        self.most = most
        self.claimed_size = len(data)
        self.there = True
        self.vanishes = False
        self.requests = 0
        self._queue: list[tuple[Any, int, int, int]] = []

    def open(self, _path: str, _mode: str) -> Stream:
        """Open the file."""
        if not self.there:
            raise FileNotFoundError(errno.ENOENT, "No such file")
        return Stream(self)

    def stat(self, _path: str) -> None:
        """Look for it."""
        if not self.there:
            raise FileNotFoundError(errno.ENOENT, "No such file")

    def _async_request(self, receiver: Any, _kind: int, _handle: bytes, at: int, size: int) -> int:
        self.requests += 1
        self._queue.append((receiver, self.requests, int(at), size))
        return self.requests

    def _read_response(self) -> None:
        receiver, number, at, size = self._queue.pop()  # answers may come in any order
        block = self.data[at : at + min(size, self.most)]
        message = Message()
        if block:
            message.add_string(block)
        message.rewind()
        receiver._async_response(CMD_DATA if block else CMD_STATUS, message, number)

    def _convert_status(self, _message: Message) -> None:
        raise EOFError


def read(server: Server, offset: int = 0, limit: int | None = None) -> bytes | None:
    """Read from it."""
    return read_file(cast("paramiko.SFTPClient", server), "/f", offset, limit, lambda: None)


DATA = bytes(number % 251 for number in range(10 * BLOCK + 17))


@pytest.mark.parametrize("most", [BLOCK, BLOCK - 1, 1000], ids=str)
@pytest.mark.parametrize(
    ("offset", "limit"),
    [(0, None), (5, None), (5, 3 * BLOCK), (BLOCK, BLOCK), (0, BLOCK + 1), (7, 100 * BLOCK)],
)
def test_short_answers_leave_no_gap(most: int, offset: int, limit: int | None) -> None:
    """Whatever the server gives at a time, and in whatever order, the bytes are in theirs."""
    end = None if limit is None else offset + limit
    assert read(Server(DATA, most), offset, limit) == DATA[offset:end]


def test_a_file_that_became_shorter_ends_where_it_ends() -> None:
    """The size that was told is no promise."""
    server = Server(DATA)
    server.claimed_size = 20 * BLOCK
    assert read(server) == DATA


def test_a_small_read_asks_for_nothing_more() -> None:
    """Most reads are of a few lines."""
    server = Server(DATA)
    assert read(server, 100, 1000) == DATA[100:1100]
    assert server.requests == 0


def test_a_file_that_vanishes_while_it_is_read_is_none() -> None:
    """That of a process which ends gives no better error."""
    server = Server(DATA)
    server.vanishes = True
    assert read(server) is None
