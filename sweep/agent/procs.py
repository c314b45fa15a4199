"""Processes, as /proc tells: identity, descendants, environment, listeners, use of CPU and disk.

A process is identified by (pid, start ticks): the kernel reuses pids, not the pair. A zombie
counts as dead: it holds neither memory nor ports.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

Identity = Tuple[int, int]
"""(pid, start ticks since boot)."""

_LISTEN = "0A"


@dataclass(frozen=True)
class Process:
    """One process at one moment. `cpu_ticks` are user and system time of its threads."""

    pid: int
    ppid: int
    group: int
    session: int
    state: str
    start_ticks: int
    cpu_ticks: int
    name: str

    @property
    def identity(self) -> Identity:
        """What tells this process from a later one with the same pid."""
        return (self.pid, self.start_ticks)

    @property
    def dead(self) -> bool:
        """Whether it is a zombie or going away."""
        return self.state in "ZXx"


def _read(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read()
    except OSError:
        return None


def parse_stat(data: bytes) -> Process:
    """Read a line of /proc/PID/stat; the name may hold blanks and parentheses."""
    opening, closing = data.index(b"("), data.rindex(b")")
    fields = data[closing + 2 :].split()
    return Process(
        pid=int(data[:opening]),
        ppid=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=fields[0].decode(),
        start_ticks=int(fields[19]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        name=data[opening + 1 : closing].decode("utf-8", "replace"),
    )


def read(pid: int) -> Optional[Process]:
    """Return a process, None when there is none with this pid."""
    data = _read("/proc/%d/stat" % pid)
    return parse_stat(data) if data else None


def alive(identity: Identity) -> bool:
    """Return whether exactly this process lives."""
    process = read(identity[0])
    return process is not None and process.identity == identity and not process.dead


def boot_id() -> str:
    """Return the kernel's name for this boot: pids and ticks mean nothing across boots."""
    data = _read("/proc/sys/kernel/random/boot_id")
    return data.decode().strip() if data else ""


def snapshot() -> Dict[int, Process]:
    """Return every process of the node."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(processes: Dict[int, Process], root: int) -> List[Process]:
    """Return the children of `root`, their children and so on, zombies included."""
    children: Dict[int, List[Process]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process)
    found: List[Process] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child.pid)
    return found


def carries(pid: int, entry: bytes) -> bool:
    """Return whether a process was started with this NAME=value entry."""
    data = _read("/proc/%d/environ" % pid)
    return data is not None and (b"\0" + entry + b"\0") in (b"\0" + data)


def name_of(pid: int) -> str:
    """Return a process's short name, or "gone"."""
    process = read(pid)
    return process.name if process else "gone"


def command_line(pid: int) -> str:
    """Return the command a process was started with, its words joined by blanks; empty when it is
    gone."""
    data = _read("/proc/%d/cmdline" % pid) or b""
    return data.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def user_id(pid: int) -> Optional[int]:
    """Return the uid that a process runs as, None when it is gone."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None


def user_name(uid: Optional[int]) -> str:
    """Return the name of a user, or the number as text when it has none."""
    if uid is None:
        return "unknown"
    import pwd  # noqa: PLC0415 - few verbs need it, and start-up time counts

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _listening(table: bytes, port: int) -> Iterator[str]:
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3].decode() == _LISTEN and int(fields[1].rsplit(b":", 1)[1], 16) == port:
            yield fields[9].decode()


def listening_sockets(port: int) -> Set[str]:
    """Return the socket inodes that listen on a TCP port, over IPv4 and IPv6."""
    inodes: Set[str] = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        inodes.update(_listening(_read(path) or b"", port))
    return inodes


def open_targets(pid: int) -> Set[str]:
    """Return what the descriptors of a process point to; empty when not readable."""
    directory = "/proc/%d/fd" % pid
    try:
        names = os.listdir(directory)
    except OSError:
        return set()
    targets = (_target("%s/%s" % (directory, name)) for name in names)
    return {target for target in targets if target is not None}


def _target(path: str) -> Optional[str]:
    try:
        return os.readlink(path)
    except OSError:
        return None


def holders(inodes: Set[str], pids: Iterable[int]) -> List[int]:
    """Return those of `pids` that hold one of the sockets."""
    wanted = {"socket:[%s]" % inode for inode in inodes}
    return [pid for pid in pids if wanted and wanted & open_targets(pid)]


def disk_bytes(pid: int) -> int:
    """Return bytes a process has read and written so far, 0 when not readable."""
    total = 0
    for line in (_read("/proc/%d/io" % pid) or b"").splitlines():
        name, _, value = line.partition(b":")
        if name in (b"rchar", b"wchar", b"read_bytes"):
            total += int(value)
    return total


def mapped_files(pid: int, prefix: bytes) -> Set[bytes]:
    """Return the paths below `prefix` that a process has mapped."""
    paths = set()
    for line in (_read("/proc/%d/maps" % pid) or b"").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith(prefix):  # noqa: PLR2004 - man proc_pid_maps
            paths.add(fields[5])
    return paths
