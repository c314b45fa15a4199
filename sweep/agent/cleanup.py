"""The end of what is ours, and the proof: no process, no port, no shared memory, no GPU memory."""

from __future__ import annotations

import os
import signal
import time
from typing import Callable, List, Sequence

from sweep.agent import gpus, procs
from sweep.agent.footprint import SHM_DIRECTORY, Footprint, shm_names
from sweep.agent.ours import Ours, send, shm_held_by

_GPU_TOLERANCE_MIB = 512.0
"""The driver's own use moves by tens of MiB; a model's by tens of thousands."""

_IPC_NAMES = ("nccl-", "psm_", "torch_")
"""How NCCL, Python and torch name their segments: these hold no user's data when nobody maps
them. Others are removed only when one of our processes was seen to hold them: a model that the
user has just copied there is also new, theirs and mapped by nobody."""

_GRACE_S = 1.0
_POLL_S = 0.01
_SLOW_POLL_S = 0.5


def kill_all(ours: Ours, until_s: float) -> List[procs.Process]:
    """Kill our processes until there are none, at most until a monotonic time; returns the rest."""
    while True:
        living = ours.scan(by_nonce=True)
        for process in living:
            send(process, signal.SIGKILL)
        if not living or time.monotonic() >= until_s:
            return living
        time.sleep(_POLL_S)


def terminate(ours: Ours, stop_s: float) -> bool:
    """Ask our processes to end, and wait up to `stop_s`; returns whether the server did.

    Once the server itself is gone, those it left behind get one more second.
    """
    server = ours.footprint.server
    until_s = time.monotonic() + stop_s
    for process in ours.scan(by_nonce=True):
        send(process, signal.SIGTERM)
    ended = False
    while ours.scan() and time.monotonic() < until_s:
        if not ended and (server is None or not procs.alive((server[0], server[1]))):
            ended = True
            until_s = min(until_s, time.monotonic() + _GRACE_S)
        time.sleep(_POLL_S)
    return server is None or not procs.alive((server[0], server[1]))


def _ports_left(footprint: Footprint) -> List[str]:
    if footprint.server is None:
        return []
    port = footprint.server[2]
    inodes = procs.listening_sockets(port)
    if not inodes:
        return []
    pids = procs.holders(inodes, procs.snapshot())
    who = ", ".join(_describe(pid) for pid in pids) or "a process that cannot be seen"
    return ["port %d is still open, held by %s: not ours by any proof, so left alone" % (port, who)]


def _describe(pid: int) -> str:
    user = procs.user_name(procs.user_id(pid))
    return "pid %d (%s, user %s)" % (pid, procs.name_of(pid), user)


def clear_shared_memory(footprint: Footprint) -> List[str]:
    """Remove the server's entries in /dev/shm that nobody holds; returns sentences on the rest."""
    new = set(shm_names()) - set(footprint.shm_before)
    ours = {
        name for name in new if name in footprint.shm_held or name.startswith(_IPC_NAMES)
    } & set(_owned(sorted(new)))
    if not ours:
        return []
    left = []
    for name in sorted(ours - shm_held_by(list(procs.snapshot()))):
        path = os.path.join(SHM_DIRECTORY, name)
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as problem:
            left.append("%s cannot be removed: %s" % (path, problem.strerror))
    return left


def _owned(names: Sequence[str]) -> List[str]:
    found = []
    for name in names:
        try:
            entry = os.lstat(os.path.join(SHM_DIRECTORY, name))
        except OSError:
            continue
        if entry.st_uid == os.geteuid():
            found.append(name)
    return found


def _gpu_memory_left(footprint: Footprint) -> List[str]:
    if not footprint.gpu_memory_mib:
        return []
    try:
        now = {gpu.uuid: gpu for gpu in gpus.list_gpus()}
    except gpus.GpuError as problem:
        return ["GPU memory is unknown: %s" % problem]
    left = []
    for uuid, before in footprint.gpu_memory_mib.items():
        used = now[uuid].memory_used_mib if uuid in now else None
        if used is None:
            left.append("GPU %s does not answer" % uuid)
        elif used > before + _GPU_TOLERANCE_MIB:
            left.append(
                "GPU %d has %.0f MiB in use, %.0f MiB before the launch"
                % (now[uuid].index, used, before)
            )
    return left


def prove(ours: Ours, until_s: float, pause: Callable[[float], None] = time.sleep) -> List[str]:
    """Kill what is ours and wait until nothing is left; returns sentences on what is.

    Gives up at a monotonic time. An empty list is the proof.
    """
    while True:
        living = kill_all(ours, min(until_s, time.monotonic() + 1.0))
        left = [
            "%s of the server does not end (state %s)" % (_describe(process.pid), process.state)
            for process in living
        ]
        if not left:
            left += _ports_left(ours.footprint)
            left += clear_shared_memory(ours.footprint)
            left += _gpu_memory_left(ours.footprint)
        if not left or time.monotonic() >= until_s:
            return left
        pause(min(_SLOW_POLL_S, max(_POLL_S, until_s - time.monotonic())))
