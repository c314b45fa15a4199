"""Who has a claim, as its lock file tells, and whether that still holds."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import List, Optional, Tuple

from sweep.agent import procs, wire

KEPT_S = 60.0
"""How long a sweep keeps its claim after a launch; its next one begins within a second."""


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
    kept_until_s: Optional[float] = None
    """Set when the launch is over and clean: until then, by this boot's monotonic clock, only the
    same sweep may claim."""


def read_holder(descriptor: int) -> Optional[Holder]:
    """Return what a lock file says; None: nothing that can be read."""
    try:
        return Holder(**json.loads(os.pread(descriptor, 1 << 20, 0)))
    except (ValueError, TypeError):
        return None


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


def is_kept(holder: Holder) -> bool:
    """Whether a sweep that has just ended a launch still keeps its claim for the next."""
    if holder.kept_until_s is None or holder.boot_id != procs.boot_id():
        return False
    return 0.0 < holder.kept_until_s - time.monotonic() <= KEPT_S


def same_sweep(one: Holder, other: Holder) -> bool:
    """Whether two launches belong to one sweep."""
    return (one.user, one.host, one.sweep) == (other.user, other.host, other.sweep)


def describe(holder: Holder) -> str:
    """Name a holder for people."""
    return "sweep %s of %s on %s (agent pid %d, since %s)" % (
        holder.sweep, holder.user, holder.host, holder.pid, holder.since_utc,
    )  # fmt: skip


def orphaned(holder: Holder, pids: List[int]) -> str:
    """Name an owner that is dead and what it left running, with what to do."""
    return (
        "the agent of %s is dead, but its server still runs (pid %s): "
        "`sweep resume %s` goes on with it, `sweep clean %s` ends it"
        % (describe(holder), ", ".join(map(str, pids)), holder.sweep, holder.sweep)
    )


def between_launches(holder: Holder) -> str:
    """Name a sweep that keeps its claim for people."""
    return "sweep %s of %s on %s, between two launches (the last one since %s)" % (
        holder.sweep, holder.user, holder.host, holder.since_utc,
    )  # fmt: skip


def state(holder: Holder) -> Tuple[bool, Optional[str]]:
    """Return whether a claim's agent lives, and why the claim is not free; None: it is free."""
    if holder.kept_until_s is not None:
        return False, between_launches(holder) if is_kept(holder) else None
    if holder_lives(holder):
        return True, describe(holder)
    pids = survivors(holder)
    return False, orphaned(holder, pids) if pids else None
