"""What is known of a launch directory, without touching it."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Dict, Optional

from sweep.agent import procs, wire
from sweep.agent.journal import read_text

LOCK_FILE = "agent.lock"
"""Locked by the agent while it lives."""
AGENT_LOG_FILE = "agent.log"
"""What the agent itself has to complain of."""


def read_ident(directory: str) -> Optional[wire.AgentIdent]:
    """Return which process runs the launch, None before it has started."""
    text = read_text(os.path.join(directory, wire.IDENT_FILE))
    return None if text is None else wire.decode_ident(text)


def is_alive(ident: wire.AgentIdent) -> bool:
    """Return whether exactly this agent lives."""
    same_boot = ident.boot_id == procs.boot_id()
    return same_boot and procs.alive((ident.pid, ident.start_ticks))


def state(directory: str, ident: Optional[wire.AgentIdent]) -> str:
    """Return absent, new, running, finished or dead."""
    if not os.path.exists(os.path.join(directory, wire.LAUNCH_FILE)):
        return "absent"
    if ident is None:
        return "new"
    # In this order: an agent that ends between the two looks has written its outcome.
    if is_alive(ident):
        return "running"
    finished = os.path.exists(os.path.join(directory, wire.OUTCOME_FILE))
    return "finished" if finished else "dead"


def status(directory: str) -> Dict[str, Any]:
    """The verb `status`."""
    ident = read_ident(directory)
    shown = None if ident is None else asdict(ident)
    return {"state": state(directory, ident), "ident": shown}
