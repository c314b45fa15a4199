"""What a launch leaves on the node: its processes, its shared memory, its port, its GPU memory.

Written beside the launch while it runs, so that whoever comes after a dead agent can end what it
started. It concerns one boot only.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Dict, List, Optional

from sweep.agent import procs, wire

SHM_DIRECTORY = "/dev/shm"  # noqa: S108 - read, and cleared of what our server left there


@dataclass
class Footprint:
    """`processes` are [pid, start ticks] of what lives; the lists of shared memory are names."""

    nonce: str
    boot_id: str
    server: Optional[List[int]] = None
    """[pid, start ticks, port]"""
    processes: List[List[int]] = field(default_factory=list)
    shm_before: List[str] = field(default_factory=list)
    """What was there before the server started: never removed."""
    shm_held: List[str] = field(default_factory=list)
    """What our processes were seen to hold."""
    gpu_memory_mib: Dict[str, float] = field(default_factory=dict)
    """Used memory of each GPU by UUID before the server started."""

    @property
    def entry(self) -> bytes:
        """The entry in the environment that marks a process as ours."""
        return ("%s=%s" % (wire.NONCE_VARIABLE, self.nonce)).encode()

    def save(self, directory: str) -> None:
        """Replace the file by rename. Not fsynced: it means nothing after a crash of the node."""
        path = os.path.join(directory, wire.FOOTPRINT_FILE)
        partial = path + ".part"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(asdict(self), stream)
        os.replace(partial, path)


def load(directory: str, nonce: str) -> Footprint:
    """Read the footprint of a launch; an empty one with its nonce when there is none."""
    boot = procs.boot_id()
    try:
        with open(os.path.join(directory, wire.FOOTPRINT_FILE), encoding="utf-8") as stream:
            found = Footprint(**json.load(stream))
    except FileNotFoundError:
        return Footprint(nonce, boot)
    return found if found.boot_id == boot else Footprint(nonce, boot)


def shm_names() -> List[str]:
    """Return the names in /dev/shm."""
    try:
        return sorted(os.listdir(SHM_DIRECTORY))
    except OSError:
        return []
