"""Small file systems that are filled to the last byte."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Disk:
    """A file system of its own at `path`."""

    path: Path

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def fill(self) -> None:
        """Take all the space that is left."""
        free = os.statvfs(self.path)
        with self._filler.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, free.f_bavail * free.f_frsize)

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink()


@contextlib.contextmanager
def disk(path: Path, size_mib: int) -> Iterator[Disk]:
    """Mount a disk in memory for the length of a with block; skips where that is not allowed."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounts need root")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
