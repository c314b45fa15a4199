"""outcome.json: the last file of a launch, with the proof of all others."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import Dict

from sweep.agent import cycles, wire
from sweep.agent.attach import LOCK_FILE
from sweep.agent.journal import Journal, write_whole
from sweep.agent.logfile import tail

_UNPROVEN = (wire.OUTCOME_FILE, LOCK_FILE)


def prove_files(directory: str) -> Dict[str, wire.FileProof]:
    """Return size and hash of every file below a directory, by relative name; the probe that was
    laid out there is no result."""
    proofs = {}
    for folder, below, names in os.walk(directory):
        if folder == directory and wire.PROBE_DIR in below:
            below.remove(wire.PROBE_DIR)
        for name in names:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, directory)
            if relative not in _UNPROVEN and os.path.isfile(path):
                proofs[relative] = _prove(path)
    return dict(sorted(proofs.items()))


def _prove(path: str) -> wire.FileProof:
    digest = hashlib.sha256()
    size = 0
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
            size += len(piece)
    return wire.FileProof(size, digest.hexdigest())


def write_outcome(directory: str, outcome: wire.Outcome, journal: Journal) -> None:
    """Complete the outcome with durations, the log's tail and the files, and write it."""
    journal.event("outcome", end=outcome.end, phase=outcome.phase, clean=outcome.clean)
    journal.sync()
    cycles.bound_files(directory)
    whole = replace(
        outcome,
        phases_s=journal.phases_s(),
        log_tail=tail(os.path.join(directory, wire.LOG_FILE)),
        files=prove_files(directory),
    )
    write_whole(os.path.join(directory, wire.OUTCOME_FILE), wire.encode(whole).encode() + b"\n")
