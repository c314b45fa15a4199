"""Disks: what kind, how much room, how fast they read."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

_NETWORK_TYPES = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs",
     "fuse.sshfs", "fuse.glusterfs", "fuse.juicefs", "afs", "9p", "pvfs2", "orangefs"]
)  # fmt: skip
_CHUNK_BYTES = 16 * 2**20
_STEP_BYTES = 2**20
_LEAST_BYTES = 4 * _CHUNK_BYTES
"""Less is read before a clock can tell how fast."""
_LIMIT_BYTES = 2**30
_LIMIT_S = 2.0
_HANG_S = 15.0
_READERS = 4
"""A server's ranks read at the same time, and most storage gives one reader less than it has."""
_SPREAD = 8
_PAGE_BYTES = 4096


def disk_facts(path: str) -> Dict[str, Any]:
    """Return free space, device and file-system type of where a directory is or would be."""
    existing = _existing(path)
    device, kind = mount_of(os.path.realpath(existing), _mounts())
    return {
        "path": os.path.abspath(path),
        "free_bytes": free_bytes(existing),
        "writable": os.access(existing, os.W_OK | os.X_OK),
        "device": device,
        "file_system": kind,
        "network": kind in _NETWORK_TYPES,
    }


def _existing(path: str) -> str:
    """Return the deepest directory on the way to a path that exists."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _mounts() -> str:
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read()


def mount_of(path: str, mounts: str) -> Tuple[Optional[str], Optional[str]]:
    """Return device and type of the file system that holds a real path, by /proc/self/mounts."""
    best = ""
    found: Tuple[Optional[str], Optional[str]] = (None, None)
    for line in mounts.splitlines():
        fields = [_unescaped(field) for field in line.split(" ")]
        point = fields[1]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point hides the first
            best, found = point, (fields[0], fields[2])
    return found


def _unescaped(field: str) -> str:
    return field.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def free_bytes(path: str) -> Optional[int]:
    """Return the free space for this user, None where it cannot be told."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def total_bytes(path: str) -> Optional[int]:
    """Return the size of a file system, None where it cannot be told."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def read_speed(path: str) -> Dict[str, Any]:
    """Read parts of a file that are not in the page cache, all over it, with a few readers.

    Takes at most about 2 s and 1 GiB, and leaves the page cache as it was. `bytes_per_s` is null
    when too little of the file was outside the cache; `cached_share` is null where the file
    system does not tell.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        offsets = _offsets(os.fstat(descriptor).st_size)
        cached = [_is_cached(descriptor, offset) for offset in offsets]
        outside = [offset for offset, inside in zip(offsets, cached) if not inside]
        done, seconds = _read(descriptor, outside)
    finally:
        os.close(descriptor)
    told = bool(cached) and None not in cached
    return {
        **disk_facts(os.path.dirname(os.path.abspath(path))),
        "path": path,
        "cached_share": sum(map(bool, cached)) / len(cached) if told else None,
        "bytes_read": done,
        "bytes_per_s": done / seconds if done >= _LEAST_BYTES else None,
    }


def _offsets(size: int) -> List[int]:
    """Return where chunks begin: all of a small file, else evenly, those far apart following each
    other, so that an early end has seen the whole file."""
    chunks = size // _CHUNK_BYTES
    count = min(chunks, _LIMIT_BYTES // _CHUNK_BYTES)
    places = [position * chunks // count * _CHUNK_BYTES for position in range(count)]
    return [place for first in range(_SPREAD) for place in places[first::_SPREAD]]


def _is_cached(descriptor: int, offset: int) -> Optional[bool]:
    """Return whether the middle of a chunk is in the page cache, None: it cannot be told."""
    try:
        os.preadv(descriptor, [bytearray(_PAGE_BYTES)], offset + _CHUNK_BYTES // 2, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            return None
        raise
    return True


def _read(descriptor: int, offsets: List[int]) -> Tuple[int, float]:
    """Read these chunks with several threads until time is over: bytes, and seconds. Raises
    OSError when the storage fails, or does not answer."""
    began_s = time.monotonic()
    left: Iterator[int] = iter(offsets)
    counts: List[int] = []
    failures: List[OSError] = []
    lock = threading.Lock()

    def read() -> None:
        while time.monotonic() - began_s < _LIMIT_S:
            with lock:
                offset = next(left, None)
            if offset is None:
                return
            try:
                counts.append(_read_chunk(descriptor, offset, began_s + _LIMIT_S))
            except OSError as problem:
                failures.append(problem)
                return

    threads = [threading.Thread(target=read, daemon=True) for _ in range(_READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, began_s + _HANG_S - time.monotonic()))
    seconds = time.monotonic() - began_s
    if failures:
        raise failures[0]
    if any(thread.is_alive() for thread in threads):
        raise TimeoutError(errno.ETIMEDOUT, "reads do not end within %g s" % _HANG_S)
    for offset in offsets:  # the next look shall find what this one found
        _drop(descriptor, offset)
    return sum(counts), seconds


def _read_chunk(descriptor: int, offset: int, until_s: float) -> int:
    """Read a chunk, from the storage and not from the page cache; return how much until time was
    over."""
    _drop(descriptor, offset)
    count = 0
    for step in range(0, _CHUNK_BYTES, _STEP_BYTES):
        if time.monotonic() >= until_s:
            break
        count += len(os.pread(descriptor, _STEP_BYTES, offset + step))
    return count


def _drop(descriptor: int, offset: int) -> None:
    """Put a chunk out of the page cache, as far as nobody has it mapped."""
    os.posix_fadvise(descriptor, offset, _CHUNK_BYTES, os.POSIX_FADV_DONTNEED)
