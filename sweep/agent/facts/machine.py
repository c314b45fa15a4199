"""The machine for any process of this user: memory, shared memory, limits, ports, time of day."""

from __future__ import annotations

import os
import platform
import resource
import socket
import time
from typing import Any, Dict, Optional, Tuple

from sweep.agent.facts.storage import free_bytes, total_bytes
from sweep.agent.footprint import SHM_DIRECTORY

_LOOPBACK = "127.0.0.1"
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""As a container sees them."""


def inspect() -> Dict[str, Any]:
    """Return the facts; sizes in bytes, null where there is no limit or it cannot be told."""
    available = _meminfo("MemAvailable")
    return {
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": _memory_bytes(),
        "memory_available_bytes": available,
        "shm_bytes": total_bytes(SHM_DIRECTORY),
        "shm_free_bytes": free_bytes(SHM_DIRECTORY),
        "open_files": _limit(resource.RLIMIT_NOFILE),
        "locked_memory_bytes": _limit(resource.RLIMIT_MEMLOCK),
        "port_error": _port_error(),
        "utc_s": time.time(),
    }


def _memory_bytes() -> int:
    """Return how much memory there is, or less where a container limits it."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _MEMORY_LIMITS:
        try:
            with open(path, encoding="ascii") as stream:
                text = stream.read().strip()
        except OSError:
            continue
        return min(whole, int(text)) if text.isdigit() else whole
    return whole


def _meminfo(name: str) -> Optional[int]:
    with open("/proc/meminfo", encoding="ascii") as stream:
        for line in stream:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return None


def _limit(kind: int) -> Tuple[Optional[int], Optional[int]]:
    """Return soft and hard limit."""
    soft, hard = (
        None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(kind)
    )
    return soft, hard


def _port_error() -> Optional[str]:
    try:
        with socket.socket() as sock:
            sock.bind((_LOOPBACK, 0))
            sock.listen()
    except OSError as problem:
        return str(problem)
    return None
