"""The directory of a private Ray: made for one driver, deleted at its end, or by a later driver.

After SIGKILL for a driver, two of Ray's processes linger for a minute. They carry the name of
the directory in their environment, so a later driver ends exactly them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
from pathlib import Path

from sweep.agent import procs
from sweep.agent.ours import send

_PREFIX = "sweep-ray-"
_LOCK = "driver.lock"
_MARK = "SWEEP_RAY_FILES"


class RayFiles:
    """A directory that is ours while this process lives, by a lock that the kernel keeps.

    Making one deletes those of this user whose driver is dead: it was killed, and could not.
    """

    def __init__(self) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked before it has its name: nobody ever sees a living driver's lock free.
        unnamed = self.path / f"{_LOCK}.new"
        self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / _LOCK)

    @property
    def environment(self) -> dict[str, str]:
        """What every process of this Ray must carry; SPT_NOENV keeps it readable there."""
        return {_MARK: str(self.path), "SPT_NOENV": "1"}

    def delete(self) -> None:
        """Delete the directory; what cannot be deleted stays."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned() -> None:
    """Delete this user's directories of dead drivers, and end what is left of their Ray; a
    directory without a lock is left alone."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if path.lstat().st_uid != os.geteuid() or path.is_symlink():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            _end_processes(f"{_MARK}={path}".encode())
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _end_processes(entry: bytes) -> None:
    """Kill every process with this entry in its environment."""
    for process in procs.snapshot().values():
        if not process.dead and procs.carries(process.pid, entry):
            send(process, signal.SIGKILL)
