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
from sweep.report.fetched import fetched_trials
from sweep.spec.tracing import traced_trials

_MOST_BYTES = 512 << 20
"""Of a trace's text: what is read of it takes several times as much memory."""


def read_traces(record: SweepRecord, most_bytes: int = _MOST_BYTES) -> TracesOf:
    """Return what became of every trace that was to be made in a fetched attempt that counts.

    Of several ranks the first one's file is read: they do the same work.
    """
    found: dict[tuple[str, int], dict[str, Traced]] = {}
    for trial, attempt in fetched_trials(record):
        name = trial.trial.trial_id
        if name in traced_trials(trial.launch, record.experiment):
            own = found.setdefault((attempt.launch_id, attempt.attempt), {})
            own[name] = _traced(attempt, name, most_bytes)
    return found


def _traced(attempt: AttemptRecord, trial_id: str, most_bytes: int) -> Traced:
    event = next(
        (e for e in attempt.events if e["event"] == "trace" and e["trial"] == trial_id), None
    )
    if event is None:
        return Traced(None, "the launch ended before the server's profiler was started")
    if not event["files"]:
        return Traced(None, event["problem"] or "the server wrote no trace")
    path = Path(str(attempt.directory)) / TRACES_DIR / trial_id / event["files"][0]
    try:
        return Traced(bin_trace(_read(path, most_bytes)), event["problem"])
    except FileNotFoundError:
        return Traced(None, f"{path.name} was not fetched")
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as problem:
        what = str(problem) if isinstance(problem, TraceError) else f"it cannot be read: {problem}"
        return Traced(None, f"{path.name}: {what}")


def _read(path: Path, most_bytes: int) -> Mapping[str, Any]:
    with gzip.open(path) as stream:
        text = stream.read(most_bytes + 1)
    if len(text) > most_bytes:
        raise TraceError(f"it is larger than {most_bytes:,} bytes: open it in Perfetto")
    trace = json.loads(text.decode("utf-8", "replace"))
    if not isinstance(trace, dict):
        raise TraceError("it is no trace")
    return trace
