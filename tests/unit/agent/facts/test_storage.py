"""Disks: mounts, and how fast a file is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.agent.facts import storage

MOUNTS = """/dev/sda1 / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
server:/models /mnt/my\\040models nfs4 rw 0 0
/dev/sdb1 /mnt/my\\040models/local xfs rw 0 0
"""
MIB = 2**20


@pytest.mark.parametrize(
    ("path", "device", "kind"),
    [
        ("/home/x", "/dev/sda1", "ext4"),
        ("/dev/shm/a", "tmpfs", "tmpfs"),
        ("/dev/shmem", "/dev/sda1", "ext4"),
        ("/mnt/my models", "server:/models", "nfs4"),
        ("/mnt/my models/a", "server:/models", "nfs4"),
        ("/mnt/my models/local/b", "/dev/sdb1", "xfs"),
    ],
)
def test_the_deepest_mount_counts(path: str, device: str, kind: str) -> None:
    """Blanks in mount points and names that only begin alike are told apart."""
    assert storage.mount_of(path, MOUNTS) == (device, kind)


def test_where_a_directory_would_be(tmp_path: Path) -> None:
    """Facts are those of the deepest directory that exists."""
    found = storage.disk_facts(str(tmp_path / "not" / "there"))
    assert found["path"] == str(tmp_path / "not" / "there")
    assert found["writable"] is True
    assert found["free_bytes"] > 0


def test_a_small_file_is_not_timed(tmp_path: Path) -> None:
    """A clock cannot tell how fast less than a few chunks are read."""
    (tmp_path / "f").write_bytes(b"x" * MIB)
    found = storage.read_speed(str(tmp_path / "f"))
    assert (found["bytes_per_s"], found["bytes_read"]) == (None, 0)


def test_a_large_file_is_read_outside_the_page_cache(tmp_path: Path) -> None:
    """What is in the cache is left alone; the rest is read and put out again."""
    path = tmp_path / "f"
    with path.open("wb") as stream:
        for _ in range(96):
            stream.write(b"x" * MIB)
        stream.flush()
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    found = storage.read_speed(str(path))
    if found["cached_share"] is None:
        pytest.skip("this file system does not tell what is in its page cache")
    assert found["bytes_read"] >= 64 * MIB
    assert found["bytes_per_s"] > MIB
    assert storage.read_speed(str(path))["cached_share"] < 0.5
    path.read_bytes()
    whole = storage.read_speed(str(path))
    assert (whole["cached_share"], whole["bytes_read"], whole["bytes_per_s"]) == (1.0, 0, None)


def test_offsets_are_spread_over_the_file() -> None:
    """At most 1 GiB of them, none twice, and an early end has seen all parts."""
    offsets = storage._offsets(64 * 2**30)
    assert len(offsets) == len(set(offsets)) == 64
    assert max(offsets) <= 64 * 2**30 - 16 * MIB
    assert max(offsets[:8]) - min(offsets[:8]) > 50 * 2**30
    assert storage._offsets(15 * MIB) == []
