"""The GPUs' clocks, read from the samples that were fetched from nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sweep.agent.wire import TELEMETRY_FILE
from sweep.analysis.clocks import ClockSample, ClocksOf
from sweep.model.record import SweepRecord


def read_clocks(record: SweepRecord) -> ClocksOf:
    """Return the samples of every fetched attempt that a trial counts.

    Files that are missing, lines that are not whole and figures that a GPU does not report give
    no samples.
    """
    wanted = {(trial.launch.launch_id, trial.attempt) for trial in record.trials}
    attempts = (attempt for launch in record.launches for attempt in launch.attempts)
    return {
        (attempt.launch_id, attempt.attempt): tuple(
            _samples(Path(attempt.directory) / TELEMETRY_FILE)
        )
        for attempt in attempts
        if (attempt.launch_id, attempt.attempt) in wanted and attempt.directory is not None
    }


def _samples(path: Path) -> Iterator[ClockSample]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:  # a node without GPUs
        return
    for line in text.splitlines():
        try:
            sample = json.loads(line)
            clock_mhz = float(sample["sm_clock_mhz"])
            reasons = int(sample["throttle_reasons"], 16)
            yield ClockSample(float(sample["t_s"]), str(sample["uuid"]), clock_mhz, reasons)
        except (ValueError, KeyError, TypeError):
            continue
