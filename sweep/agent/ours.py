"""Which processes are ours, and signals to those alone.

Ours are: the descendants of the agent outside its own session (the server has its own, and what
the server leaves behind is adopted by the agent, the child-subreaper), what was recorded as such
before, whatever carries the nonce in its environment, and the children of all these.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Callable, Dict, List, Optional, Set

from sweep.agent import procs
from sweep.agent.footprint import SHM_DIRECTORY, Footprint, shm_names

_SHM = SHM_DIRECTORY.encode() + b"/"


def send(process: procs.Process, number: int) -> bool:
    """Signal exactly this process; False when it is gone. Never hits a later one with its pid."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):
        return _send_by_pid(process, number)  # kernels before 5.3 have no pidfd
    try:
        if not procs.alive(process.identity):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _send_by_pid(process: procs.Process, number: int) -> bool:
    if not procs.alive(process.identity):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


class Ours:
    """Follows our processes. `agent` is the pid of the agent, None when it is dead."""

    def __init__(
        self,
        footprint: Footprint,
        agent: Optional[int],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.footprint = footprint
        self._agent = agent
        self._session = os.getsid(0)
        self._changed = changed
        self._lock = threading.Lock()

    def scan(self, *, by_nonce: bool = False) -> List[procs.Process]:
        """Return our live processes, record them, and reap what we adopted.

        `by_nonce` also reads the environment of every process of the node: slower, and needed
        only where a parent may have died before its child was recorded.
        """
        with self._lock:
            return self._scan(by_nonce=by_nonce)

    def _scan(self, *, by_nonce: bool) -> List[procs.Process]:
        everyone = procs.snapshot()
        found: Dict[int, procs.Process] = {}
        for pid in self._roots(everyone, by_nonce=by_nonce):
            found[pid] = everyone[pid]
            found.update((child.pid, child) for child in procs.descendants(everyone, pid))
        found.pop(os.getpid(), None)
        living = [process for process in found.values() if not process.dead]
        for process in found.values():
            if process.dead:
                self._reap(process)
        self._record(living)
        return living

    def _roots(self, everyone: Dict[int, procs.Process], *, by_nonce: bool) -> Set[int]:
        roots = {
            pid
            for pid, ticks in self.footprint.processes
            if pid in everyone and everyone[pid].start_ticks == ticks
        }
        if self._agent is not None:
            for process in procs.descendants(everyone, self._agent):
                if process.session != self._session:
                    roots.add(process.pid)
        if by_nonce:
            entry = self.footprint.entry
            roots.update(pid for pid in everyone if procs.carries(pid, entry))
        return roots

    def _reap(self, process: procs.Process) -> None:
        server = self.footprint.server
        if process.ppid != self._agent or (server and process.pid == server[0]):
            return  # the server itself is waited for by the thread that reports its exit
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)

    def _record(self, living: List[procs.Process]) -> None:
        identities = sorted([list(process.identity) for process in living])
        if identities != self.footprint.processes:
            self.footprint.processes = identities
            self._changed()

    def note_shared_memory(self, living: List[procs.Process]) -> None:
        """Record which new entries of /dev/shm our processes have mapped or opened."""
        new = set(shm_names()) - set(self.footprint.shm_before) - set(self.footprint.shm_held)
        if not new:
            return
        held = new & shm_held_by([process.pid for process in living])
        if held:
            self.footprint.shm_held = sorted(held.union(self.footprint.shm_held))
            self._changed()

    def listens(self, port: int) -> bool:
        """Return whether one of our processes listens on a port."""
        inodes = procs.listening_sockets(port)
        if not inodes:
            return False
        return bool(procs.holders(inodes, [process.pid for process in self.scan()]))


def shm_held_by(pids: List[int]) -> Set[str]:
    """Return the names in /dev/shm that processes have mapped or opened."""
    names: Set[str] = set()
    for pid in pids:
        paths = procs.mapped_files(pid, _SHM)
        paths.update(os.fsencode(target) for target in procs.open_targets(pid))
        names.update(os.fsdecode(path[len(_SHM) :]) for path in paths if path.startswith(_SHM))
    return names
