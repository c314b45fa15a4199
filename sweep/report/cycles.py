"""What engines recorded of their cycles, read from the files that were fetched from nodes."""

from __future__ import annotations

from pathlib import Path

from sweep.agent.cycles import CyclesMismatch, decode, file_names
from sweep.analysis.cycles import CyclesOf, Recorded, recording
from sweep.model.record import SweepRecord


def read_cycles(record: SweepRecord) -> CyclesOf:
    """Return what was recorded in every fetched attempt that a trial counts.

    An attempt whose files were not fetched is left out; one without a file of cycles is there,
    with nothing recorded. A file of another version is a problem, told by name.
    """
    wanted = {(trial.launch.launch_id, trial.attempt) for trial in record.trials}
    attempts = (attempt for launch in record.launches for attempt in launch.attempts)
    return {
        (attempt.launch_id, attempt.attempt): _read(Path(attempt.directory))
        for attempt in attempts
        if (attempt.launch_id, attempt.attempt) in wanted
        and attempt.directory is not None
        and Path(attempt.directory).is_dir()
    }


def _read(directory: Path) -> Recorded:
    recordings, problems = [], []
    for name in file_names([path.name for path in directory.iterdir()]):
        text = (directory / name).read_text(encoding="utf-8", errors="replace")
        try:
            found = recording(decode(text, name))
        except CyclesMismatch as mismatch:
            problems.append(str(mismatch))
            continue
        if found is not None:
            recordings.append(found)
    return Recorded(tuple(recordings), tuple(problems))
