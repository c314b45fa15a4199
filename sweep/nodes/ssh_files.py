"""Whole files written, and parts of files read, over SFTP."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

import paramiko

BLOCK = 32 * 1024
"""What every SFTP server sends in one answer."""


def put_file(sftp: paramiko.SFTPClient, path: str, partial: str, data: bytes) -> None:
    """Write `partial` with mode 0600 and rename it to `path`; parents are made with 0700."""
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
        raise OSError(f"only {size} of {len(data)} bytes arrived; the disk may be full")
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
            return b"".join(_blocks(stream, offset, limit, heard))
    except FileNotFoundError:
        return None
    except OSError:
        # The file of a process that ended between opening and reading gives no better error.
        if _exists(sftp, path):
            raise
        return None


def _blocks(
    stream: paramiko.SFTPFile, offset: int, limit: int | None, heard: Callable[[], None]
) -> Iterator[bytes]:
    """Yield what is read: one block, and when there is more, the rest by requests at once."""
    first = BLOCK if limit is None else min(limit, BLOCK)
    stream.seek(offset)
    block = stream.read(first)
    heard()
    yield block
    if len(block) < BLOCK:
        return
    end = stream.stat().st_size or 0
    end = end if limit is None else min(end, offset + limit)
    starts = range(offset + BLOCK, end, BLOCK)
    for block in stream.readv([(start, min(BLOCK, end - start)) for start in starts]):
        heard()
        yield block


def _make_private(sftp: paramiko.SFTPClient, directory: str) -> None:
    """Make a directory and its missing parents, each with mode 0700."""
    if _exists(sftp, directory):
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
