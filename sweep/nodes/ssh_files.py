"""Whole files written, and parts of files read, over SFTP."""

from __future__ import annotations

import errno
import posixpath
import stat
from collections.abc import Callable, Iterator
from typing import Any

import paramiko
from paramiko.sftp import CMD_DATA, CMD_READ, int64

from sweep.nodes.local import no_directory

BLOCK = 32 * 1024
"""What every SFTP server sends in one answer."""
_AT_ONCE = 64
"""Requests on their way at a time, as many as OpenSSH's own client sends."""


def put_file(sftp: paramiko.SFTPClient, path: str, partial: str, data: bytes) -> None:
    """Write `partial` with mode 0600 and rename it to `path`; parents are made with 0700.

    What the node does not take whole is an OSError with ENOSPC, and does not stay there.
    """
    try:
        stream = sftp.open(partial, "wb")
    except FileNotFoundError:
        _make_private(sftp, posixpath.dirname(path))
        stream = sftp.open(partial, "wb")
    with stream:
        stream.chmod(0o600)
        stream.set_pipelined(pipelined=True)
        for start in range(0, len(data), BLOCK):
            stream.write(data[start : start + BLOCK])
    size = sftp.stat(partial).st_size
    if size != len(data):
        sftp.remove(partial)
        # SFTP has no word for it; of a path that could be opened, hardly anything else is meant.
        said = f"the disk is full: only {size} of {len(data)} bytes arrived"
        raise OSError(errno.ENOSPC, said)
    sftp.posix_rename(partial, path)


def read_file(
    sftp: paramiko.SFTPClient,
    path: str,
    offset: int,
    limit: int | None,
    heard: Callable[[], None],
) -> bytes | None:
    """Return at most `limit` bytes from `offset`, None when there is no such file.

    `heard` is called whenever some arrive.
    """
    try:
        with sftp.open(path, "rb") as stream:
            return b"".join(_blocks(sftp, stream, offset, limit, heard))
    except FileNotFoundError:
        return None
    except OSError:
        # The file of a process that ended between opening and reading gives no better error.
        if _exists(sftp, path):
            raise
        return None


def _blocks(
    sftp: paramiko.SFTPClient,
    stream: paramiko.SFTPFile,
    offset: int,
    limit: int | None,
    heard: Callable[[], None],
) -> Iterator[bytes]:
    """Yield what is read: one block, and when there is more, the rest by requests at once."""
    stream.seek(offset)
    block = stream.read(BLOCK if limit is None else min(limit, BLOCK))
    heard()
    yield block
    if len(block) < BLOCK:
        return
    end = stream.stat().st_size or 0
    end = end if limit is None else min(end, offset + limit)
    position = offset + BLOCK
    while position < end:
        answers = _Answers(sftp, stream.handle, position, min(end, position + _AT_ONCE * BLOCK))
        for block in answers.blocks(heard):
            yield block
            position += len(block)
            if len(block) < BLOCK:  # what was asked for behind it would leave a gap
                break
        if not block:
            return


class _Answers:
    """Read requests sent at once. paramiko's own way of doing so leaves a thread behind that
    prints a traceback when the connection breaks, so its messages are used here directly.
    """

    def __init__(self, sftp: Any, handle: Any, start: int, end: int) -> None:
        self._sftp = sftp
        self._answers: dict[int, bytes] = {}
        self._numbers = [
            sftp._async_request(self, CMD_READ, handle, int64(at), min(BLOCK, end - at))  # noqa: SLF001 - see above
            for at in range(start, end, BLOCK)
        ]

    def blocks(self, heard: Callable[[], None]) -> Iterator[bytes]:
        """Yield them in order up to the end of the file."""
        for number in self._numbers:
            while number not in self._answers:
                self._sftp._read_response()  # noqa: SLF001 - see above
                heard()
            yield self._answers.pop(number)

    def _async_response(self, kind: int, message: Any, number: int) -> None:
        """Called by paramiko with an answer: data, or a status such as the end of the file."""
        if kind == CMD_DATA:
            self._answers[number] = message.get_binary()
            return
        try:
            self._sftp._convert_status(message)  # noqa: SLF001 - see above
        except EOFError:
            self._answers[number] = b""


def _make_private(sftp: paramiko.SFTPClient, directory: str) -> None:
    """Make a directory and its missing parents, each with mode 0700."""
    try:
        mode = sftp.stat(directory).st_mode
    except FileNotFoundError:
        pass
    else:
        # Of a path below a plain file, SFTP only says that there is no such file.
        if mode is not None and not stat.S_ISDIR(mode):
            raise no_directory(directory)
        return
    _make_private(sftp, posixpath.dirname(directory))
    try:
        sftp.mkdir(directory, 0o700)
    except OSError:
        if not _exists(sftp, directory):  # else another sweep made it meanwhile
            raise


def _exists(sftp: paramiko.SFTPClient, path: str) -> bool:
    try:
        sftp.stat(path)
    except FileNotFoundError:
        return False
    return True
