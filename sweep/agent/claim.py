"""Who may use the GPUs: one lock file per GPU of the node, or one for a node without GPUs.

The kernel's flock decides, so a claim ends with the process that holds it. The file's content
names the owner for everybody else, and the processes the owner started: when an owner died and
its server lives on, the GPUs are not free. Lock files are never removed: removing a file that
another process has just opened would give the same claim to two owners.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from dataclasses import asdict, dataclass, field
from typing import Dict, List, Optional, Sequence, Union

from sweep.agent import procs, wire
from sweep.agent.gpus import Gpu

DIRECTORY_VARIABLE = "SWEEP_CLAIM_DIR"
_PREFIX = "sweep-"
_SUFFIX = ".lock"
_NODE = "node"


class ClaimError(RuntimeError):
    """A lock file cannot be used; the message says which, why and what to do."""


@dataclass(frozen=True)
class Holder:
    """The owner of a claim, as its lock file tells. `processes` are what the owner started."""

    user: str
    host: str
    sweep: str
    directory: str
    nonce: str
    pid: int
    start_ticks: int
    boot_id: str
    since_utc: str
    processes: List[List[int]] = field(default_factory=list)


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
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return ": %s must be writable for every user" % os.path.dirname(path)
    return ": ask %s to run: chmod 666 %s" % (procs.user_name(owner), path)


def _path(folder: str, resource: str) -> str:
    return os.path.join(folder, _PREFIX + resource.replace("/", "_") + _SUFFIX)


def _read(descriptor: int) -> Optional[Holder]:
    try:
        return Holder(**json.loads(os.pread(descriptor, 1 << 20, 0)))
    except (ValueError, TypeError):
        return None


def _overwrite(descriptor: int, data: bytes) -> None:
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


def survivors(holder: Holder) -> List[int]:
    """Return the pids of processes that a holder started and that still live."""
    if holder.boot_id != procs.boot_id():
        return []
    found = {pid for pid, ticks in holder.processes if procs.alive((pid, ticks))}
    entry = ("%s=%s" % (wire.NONCE_VARIABLE, holder.nonce)).encode()
    for process in procs.snapshot().values():
        if not process.dead and procs.carries(process.pid, entry):
            found.add(process.pid)
    return sorted(found)


def holder_lives(holder: Holder) -> bool:
    """Return whether the agent that holds a claim is alive."""
    same_boot = holder.boot_id == procs.boot_id()
    return same_boot and procs.alive((holder.pid, holder.start_ticks))


def describe(holder: Holder) -> str:
    """Name a holder for people."""
    return "sweep %s of %s on %s (agent pid %d, since %s)" % (
        holder.sweep, holder.user, holder.host, holder.pid, holder.since_utc,
    )  # fmt: skip


def _orphaned(holder: Holder, pids: List[int]) -> str:
    return (
        "the agent of %s is dead, but its server still runs (pid %s): "
        "`sweep resume %s` goes on with it, `sweep clean %s` ends it"
        % (describe(holder), ", ".join(map(str, pids)), holder.sweep, holder.sweep)
    )


class Claim:
    """Locks that this process holds."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self._descriptors: List[int] = []

    def _take(self, path: str, resource: str) -> Optional[Held]:
        descriptor = open_shared(path)
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            other = _read(descriptor)
            return Held(resource, other, describe(other) if other else "an agent that just started")
        other = _read(descriptor)
        pids = survivors(other) if other else []
        return Held(resource, other, _orphaned(other, pids)) if other and pids else None

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
        document: Dict[str, object] = asdict(self.holder)
        document["processes"] = [list(identity) for identity in processes]
        data = json.dumps(document).encode()
        for descriptor in self._descriptors:
            _overwrite(descriptor, data)

    def release(self) -> None:
        """Give the locks back. What is not clean stays named in the files: see `abandon`."""
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
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
            continue
        holder = _read_path(os.path.join(folder, name))
        if holder is None:
            continue
        lives = holder_lives(holder)
        pids = [] if lives else survivors(holder)
        if lives or pids:
            entry: Dict[str, object] = {
                "resource": name[len(_PREFIX) : -len(_SUFFIX)],
                "holder": asdict(holder),
                "alive": lives,
                "reason": describe(holder) if lives else _orphaned(holder, pids),
            }
            held.append(entry)
    return held


def _read_path(path: str) -> Union[Holder, None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)
