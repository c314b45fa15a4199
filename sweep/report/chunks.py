"""Gaps between streamed outputs, read from the chunk files that were fetched from nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sweep.agent.wire import CHUNKS_FILE
from sweep.analysis.frame import Gaps
from sweep.model.record import AttemptRecord, SweepRecord


def read_gaps(record: SweepRecord) -> Gaps:
    """Return the gaps [s] of every fetched attempt that a trial counts.

    Files that are missing, and lines that are not whole, give no gaps: they are null in the table.
    """
    wanted = {(trial.launch.launch_id, trial.attempt) for trial in record.trials}
    attempts = (attempt for launch in record.launches for attempt in launch.attempts)
    return {
        (attempt.launch_id, attempt.attempt): _gaps_of(lines)
        for attempt in attempts
        if (attempt.launch_id, attempt.attempt) in wanted and (lines := _lines(attempt)) is not None
    }


def _lines(attempt: AttemptRecord) -> Iterable[str] | None:
    if attempt.directory is None:
        return None
    try:
        text = (Path(attempt.directory) / CHUNKS_FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    return text.split("\n")


def _gaps_of(lines: Iterable[str]) -> dict[int, list[float]]:
    gaps: dict[int, list[float]] = {}
    for line in lines:
        try:
            chunk = json.loads(line)
            gaps[int(chunk["n"])] = np.diff(chunk["chunk_s"]).tolist()
        except (ValueError, KeyError, TypeError):
            continue
    return gaps
