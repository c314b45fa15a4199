"""Traces of the server's own profiler, read from the files that were fetched from nodes."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.agent.wire import TRACES_DIR
from sweep.analysis.trace import TraceError, bin_trace
from sweep.analysis.traced import Traced, TracesOf
from sweep.model.record import AttemptRecord, SweepRecord
from sweep.spec.tracing import traced_trials


def read_traces(record: SweepRecord) -> TracesOf:
    """Return what became of every trace that was to be made in a fetched attempt that counts.

    Of several ranks the first one's file is read: they do the same work.
    """
    attempts = {
        (attempt.launch_id, attempt.attempt): attempt
        for launch in record.launches
        for attempt in launch.attempts
        if attempt.directory is not None
    }
    found: dict[tuple[str, int], dict[str, Traced]] = {}
    for trial in record.trials:
        key = (trial.launch.launch_id, trial.attempt or 0)
        attempt, name = attempts.get(key), trial.trial.trial_id
        if attempt is not None and name in traced_trials(trial.launch, record.experiment):
            found.setdefault(key, {})[name] = _traced(attempt, name)
    return found


def _traced(attempt: AttemptRecord, trial_id: str) -> Traced:
    event = next(
        (e for e in attempt.events if e["event"] == "trace" and e["trial"] == trial_id), None
    )
    if event is None:
        return Traced(None, "the launch ended before the server's profiler was started")
    if not event["files"]:
        return Traced(None, event["problem"] or "the server wrote no trace")
    path = Path(str(attempt.directory)) / TRACES_DIR / trial_id / event["files"][0]
    try:
        return Traced(bin_trace(_read(path)), event["problem"])
    except FileNotFoundError:
        return Traced(None, f"{path.name} was not fetched")
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as problem:
        what = str(problem) if isinstance(problem, TraceError) else f"it cannot be read: {problem}"
        return Traced(None, f"{path.name}: {what}")


def _read(path: Path) -> Mapping[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as stream:
        trace = json.load(stream)
    if not isinstance(trace, dict):
        raise TraceError("it is no trace")
    return trace
