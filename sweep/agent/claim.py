"""Who may use the GPUs: one lock file per GPU of the node, or one for a node without GPUs.

The kernel's flock decides, so a claim ends with the process that holds it. The file's content
names the owner for everybody else, and the processes the owner started: when an owner died and
its server lives on, the GPUs are not free. After a launch the content keeps them for the next one
of the same sweep, for a short while, so that nobody slips in between. Lock files are never
removed: removing a file that another process has just opened would give the same claim to two
owners.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from dataclasses import asdict, dataclass, replace
from typing import Dict, List, Optional, Sequence, Union

from sweep.agent import procs
from sweep.agent.gpus import Gpu
from sweep.agent.holder import (
    KEPT_S,
    Holder,
    between_launches,
    describe,
    holder_lives,
    is_kept,
    orphaned,
    read_holder,
    same_sweep,
    state,
    survivors,
)

DIRECTORY_VARIABLE = "SWEEP_CLAIM_DIR"
_PREFIX = "sweep-"
_SUFFIX = ".lock"
_NODE = "node"
_GLANCE_S = 1.0
"""Looking at who holds a claim takes far less."""


class ClaimError(RuntimeError):
    """A lock file cannot be used; the message says which, why and what to do."""


@dataclass(frozen=True)
class Held:
    """A claim that somebody has: `holder` is null while its owner has not written yet."""

    resource: str
    holder: Optional[Holder]
    reason: str


def directory() -> str:
    """Return the node's directory for locks: the same one for every user."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return chosen
    shared = "/run/lock"
    try:
        mode = os.stat(shared).st_mode
    except OSError:
        return "/tmp"  # noqa: S108 - shared by every user on purpose; names are opened O_NOFOLLOW
    everyone = stat.S_ISVTX | stat.S_IWOTH
    return shared if mode & everyone == everyone else "/tmp"  # noqa: S108 - as above


def unusable(folder: str) -> Optional[str]:
    """Return why no claim can be taken in a directory, as far as looking tells; None: it can."""
    if not os.path.isdir(folder):
        return _not_there(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        return "%s cannot be written" % folder
    files = [os.path.join(folder, name) for name in _lock_files(folder)]
    closed = [path for path in files if not os.access(path, os.R_OK | os.W_OK)]
    return "cannot open %s%s" % (closed[0], _remedy(closed[0])) if closed else None


def _not_there(folder: str) -> str:
    return "%s, where claims are kept, is not a directory" % folder


def resources(gpus: Sequence[Gpu]) -> List[str]:
    """Return the names to claim, sorted, so that two claimers never wait for each other."""
    return sorted("gpu-" + gpu.uuid for gpu in gpus) or [_NODE]


def open_shared(path: str) -> int:
    """Open a file that every user of the node may write; create it when it is missing.

    Kernels with fs.protected_regular refuse O_CREAT on another user's file in a sticky
    directory, so an existing file is opened without it.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        for _ in range(3):
            try:
                return os.open(path, flags)
            except FileNotFoundError:
                pass
            try:
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            os.fchmod(descriptor, 0o666)  # whatever the umask is
            return descriptor
    except OSError as problem:
        raise ClaimError(
            "cannot open %s (%s)%s" % (path, problem.strerror, _remedy(path))
        ) from problem
    raise ClaimError("%s appears and disappears: something removes lock files" % path)


def _remedy(path: str) -> str:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return ": %s; make it, writable for every user" % _not_there(folder)
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return ": %s must be writable for every user" % folder
    return ": ask %s to run: chmod 666 %s" % (procs.user_name(owner), path)


def _path(folder: str, resource: str) -> str:
    return os.path.join(folder, _PREFIX + resource.replace("/", "_") + _SUFFIX)


def _overwrite(descriptor: int, data: bytes) -> None:
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


class Claim:
    """Locks that this process holds."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self._descriptors: List[int] = []

    def _take(self, path: str, resource: str) -> Optional[Held]:
        descriptor = open_shared(path)
        self._descriptors.append(descriptor)
        if (kept := self._kept(descriptor, resource)) is not None:
            return kept  # without touching the lock: the sweep that keeps it is about to take it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            other = read_holder(descriptor)
            return Held(resource, other, describe(other) if other else "an agent that just started")
        other = read_holder(descriptor)
        if other is None or other.kept_until_s is not None:
            return self._kept(descriptor, resource)  # what is kept was proven clean
        pids = survivors(other)
        return Held(resource, other, orphaned(other, pids)) if pids else None

    def _kept(self, descriptor: int, resource: str) -> Optional[Held]:
        """Return which other sweep keeps a claim for its next launch."""
        other = read_holder(descriptor)
        if other is None or not is_kept(other) or same_sweep(other, self.holder):
            return None
        return Held(resource, other, between_launches(other))

    def add(self, descriptor: int) -> None:
        """Hold a lock that was taken over."""
        self._descriptors.append(descriptor)

    def _close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def take(self, folder: str, names: Sequence[str]) -> Optional[Held]:
        """Take all locks or none; returns who holds one of them. Raises ClaimError."""
        try:
            for name in names:
                held = self._take(_path(folder, name), name)
                if held is not None:
                    self._close()
                    return held
        except BaseException:
            self._close()
            raise
        self.record([])
        return None

    def record(self, processes: Sequence[procs.Identity]) -> None:
        """Write into the lock files who holds them and what it has started."""
        self._write(replace(self.holder, processes=[list(identity) for identity in processes]))

    def _write(self, holder: Holder) -> None:
        data = json.dumps(asdict(holder)).encode()
        for descriptor in self._descriptors:
            _overwrite(descriptor, data)

    def release(self, *, keep: bool = False) -> None:
        """Give the locks back, or keep them for the sweep's next launch, which ends by itself.
        What is not clean stays named in the files: see `abandon`."""
        if keep:
            self._write(replace(self.holder, kept_until_s=time.monotonic() + KEPT_S))
        else:
            for descriptor in self._descriptors:
                _overwrite(descriptor, b"")
        self._close()

    def abandon(self) -> None:
        """Let go of the locks, but leave the names of what still runs in the files."""
        self._close()


def list_held(folder: str) -> List[Dict[str, object]]:
    """Return the claims of this node that somebody holds, alive or with a server left behind.

    Looks at owners only: taking the locks, even for a moment, would disturb those who claim.
    """
    held: List[Dict[str, object]] = []
    for name in _lock_files(folder):
        holder = _read_path(os.path.join(folder, name))
        if holder is None:
            continue
        lives, reason = state(holder)
        if reason is not None:
            held.append(
                {
                    "resource": _resource(name),
                    "holder": asdict(holder),
                    "alive": lives,
                    "reason": reason,
                }
            )
    return held


def inherit(folder: str, nonce: str) -> Optional[Claim]:
    """Take the locks that the dead agent of a launch still has by its name, so that nobody slips in
    while what it left is cleaned up. None: there are none, or others have them by now."""
    found: Optional[Claim] = None
    for name in _lock_files(folder):
        path = os.path.join(folder, name)
        holder = _read_path(path)
        if holder is None or not _is_left_by(holder, nonce):
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        if _locked_soon(descriptor) and read_holder(descriptor) == holder:
            found = found or Claim(replace(holder, processes=[]))
            found.add(descriptor)
        else:
            os.close(descriptor)
    return found


def _is_left_by(holder: Holder, nonce: str) -> bool:
    return holder.nonce == nonce and holder.kept_until_s is None and not holder_lives(holder)


def _locked_soon(descriptor: int) -> bool:
    """Lock a file; those who wait for a claim lock it for a moment only."""
    until_s = time.monotonic() + _GLANCE_S
    while not _locked(descriptor):
        if time.monotonic() >= until_s:
            return False
        time.sleep(_GLANCE_S / 100)
    return True


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def let_go(folder: str, sweep: str) -> List[str]:
    """Give back what a sweep keeps between launches, because there is no next one. Returns the
    names of what it kept."""
    given = []
    for name in _lock_files(folder):
        path = os.path.join(folder, name)
        holder = _read_path(path)
        if holder is None or holder.sweep != sweep or not is_kept(holder):
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # it lapses by itself
        try:
            # Not locked: someone has just claimed it.
            if _locked(descriptor) and read_holder(descriptor) == holder:
                _overwrite(descriptor, b"")
                given.append(_resource(name))
        finally:
            os.close(descriptor)
    return given


def _lock_files(folder: str) -> List[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [name for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]


def _resource(name: str) -> str:
    return name[len(_PREFIX) : -len(_SUFFIX)]


def _read_path(path: str) -> Union[Holder, None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return read_holder(descriptor)
    finally:
        os.close(descriptor)
