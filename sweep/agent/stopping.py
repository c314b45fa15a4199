"""The verb `stop`: ends a launch, whether its agent lives or not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import Any, Dict, List

from sweep.agent import attach, claim, cleanup, footprint, procs, wire
from sweep.agent.daemon import open_lock
from sweep.agent.journal import Journal, read_text
from sweep.agent.ours import Ours, send

_POLL_S = 0.01
_MARGIN_S = 10.0
"""For an agent to write its outcome after the server is stopped and the node verified."""


def stop(directory: str) -> Dict[str, Any]:
    """End what a launch runs. Returns what it was before, and what is left on the node."""
    ident = attach.read_ident(directory)
    was = attach.state(directory, ident)
    text = read_text(os.path.join(directory, wire.LAUNCH_FILE))
    if text is None or ident is None:
        return {"was": was, "clean": True, "left": []}
    doc = wire.decode_launch(text)
    if was == "running":
        _ask(ident, doc.deadlines)
    if attach.state(directory, ident) == "dead":
        left = _clean_after_dead(directory, doc)
    elif _ended_clean(directory):
        left = []
    else:
        left = _clean(directory, doc)  # its files are proven by the outcome: nothing is written
    return {"was": was, "clean": not left, "left": left}


def _ended_clean(directory: str) -> bool:
    text = read_text(os.path.join(directory, wire.OUTCOME_FILE))
    return text is not None and wire.decode_outcome(text).clean


def _ask(ident: wire.AgentIdent, deadlines: wire.Deadlines) -> None:
    """Signal a live agent and wait for its end; one that does not come to it is killed."""
    process = procs.read(ident.pid)
    if process is None or process.start_ticks != ident.start_ticks:
        return
    send(process, signal.SIGTERM)
    until_s = time.monotonic() + deadlines.stop_s + deadlines.verify_s + _MARGIN_S
    while attach.is_alive(ident):
        if time.monotonic() > until_s:
            send(process, signal.SIGKILL)
        time.sleep(_POLL_S)


def _clean(directory: str, doc: wire.LaunchDoc) -> List[str]:
    """Kill what a launch has left, and return what is left after that."""
    ours = Ours(footprint.load(directory, doc.nonce), None)
    ours.note_shared_memory(ours.scan(by_nonce=True))
    cleanup.terminate(ours, doc.deadlines.stop_s)
    return cleanup.prove(ours, time.monotonic() + doc.deadlines.verify_s)


def _clean_after_dead(directory: str, doc: wire.LaunchDoc) -> List[str]:
    """Clean up after an agent that died, and say so in its events."""
    lock = open_lock(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two who stop the same launch take turns
        _note(directory, "stopping", by="stop")
        inherited = claim.inherit(claim.directory(), doc.nonce)
        left = _clean(directory, doc)
        if left:
            _note(directory, "dirty", left=left)
        else:
            _note(directory, "clean")
        if inherited is not None:
            inherited.abandon() if left else inherited.release(keep=True)
        return left
    finally:
        os.close(lock)


def _note(directory: str, kind: str, **fields: Any) -> None:
    """Append an event to those of a dead agent. What a full disk cannot take is not said, because
    what its server holds must be given back all the same."""
    with contextlib.suppress(OSError):
        journal = Journal(directory)
        journal.resume()
        journal.event(kind, **fields)
