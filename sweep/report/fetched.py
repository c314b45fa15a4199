"""Trials whose files were fetched from their nodes."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.model.record import AttemptRecord, SweepRecord, TrialRecord


def fetched_trials(record: SweepRecord) -> Iterator[tuple[TrialRecord, AttemptRecord]]:
    """Yield every trial with the attempt that counts, where the files of that are here."""
    attempts = {
        (attempt.launch_id, attempt.attempt): attempt
        for launch in record.launches
        for attempt in launch.attempts
        if attempt.directory is not None
    }
    for trial in record.trials:
        attempt = attempts.get((trial.launch.launch_id, trial.attempt or 0))
        if attempt is not None:
            yield trial, attempt
