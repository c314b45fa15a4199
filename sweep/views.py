"""What the reading verbs show, from the sweep's directory alone. Prints nothing."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.agent import procs, wire
from sweep.driver.clock import SystemClock
from sweep.engines import engine_of
from sweep.model.errors import UsageError
from sweep.model.experiment import NodeSpec
from sweep.model.plan import Plan
from sweep.model.record import SweepRecord
from sweep.model.states import LaunchState
from sweep.nodes.access import node_factory
from sweep.nodes.local import LocalNode
from sweep.report.progress import Progress, read_progress
from sweep.store.directory import FoundSweep, choose_sweep, find_sweeps
from sweep.store.read import read_sweep
from sweep.store.sweep_db import DB_FILE, AttemptRow, RunRow, SweepDb

if TYPE_CHECKING:
    import pandas as pd

    from sweep.analysis.verdict import Verdict

_FOLLOW_S = 0.2
_SHOW_S = 1.0
_REPORT_FILE = "report.html"
_LOG_CHUNK_BYTES = 1 << 20
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def results_directory(option: str | None, environment: Mapping[str, str]) -> Path:
    """Return where sweeps are kept: --results, SWEEP_RESULTS, or ./results."""
    return Path(option or environment.get("SWEEP_RESULTS") or "results")


def find(results: Path, text: str | None) -> FoundSweep:
    """Return the sweep named, or the latest that can be read; raises UsageError."""
    sweeps = find_sweeps(results)
    if text:
        return choose_sweep(sweeps, text)
    readable = [sweep for sweep in sweeps if sweep.problem is None]
    if sweeps and not readable:
        raise UsageError(f"no sweep below {results} can be read", hint="`sweep list` says why")
    if not readable:
        raise UsageError(f"no sweep below {results}", hint="start one: `sweep submit FILE`")
    return readable[-1]


def driver_lives(run: RunRow | None) -> bool:
    """Return whether the process of a run lives, by pid, start time and boot."""
    if run is None or run.exit_code is not None or run.boot_id != procs.boot_id():
        return False
    process = procs.read(run.pid)
    return process is not None and process.start_ticks == run.start_ticks and not process.dead


def progress(directory: Path) -> Progress:
    """Return how far a sweep is."""
    database = SweepDb.open(directory)
    try:
        runs = database.runs()
        alive = driver_lives(runs[-1] if runs else None)
        return read_progress(database, SystemClock().utc(), driver_alive=alive)
    finally:
        database.close()


def watch(directory: Path, show: Callable[[Progress], None]) -> None:
    """Show progress until no driver lives."""
    while True:
        now = progress(directory)
        show(now)
        if not now.driver_alive:
            return
        time.sleep(_SHOW_S)


def summary_json(now: Progress) -> dict[str, Any]:
    """Return a progress as JSON types."""
    document: dict[str, Any] = json.loads(json.dumps(now, default=vars))
    return document


def list_sweeps(results: Path) -> list[dict[str, Any]]:
    """Return a line per sweep: id, name, created, driver, and its trials by state; or what keeps
    it from being read (`problem`)."""
    return [_listed(found) for found in find_sweeps(results)]


def _listed(found: FoundSweep) -> dict[str, Any]:
    row: dict[str, Any] = {
        "sweep_id": found.sweep_id,
        "name": found.name,
        "created_utc": found.created_utc,
        "problem": found.problem,
        "running": False,
        "exit_code": None,
        "trials": {},
    }
    if found.problem is not None:
        return row
    database = SweepDb.open(found.directory)
    try:
        runs, states = database.runs(), database.trial_states().values()
    finally:
        database.close()
    last = runs[-1] if runs else None
    return row | {
        "running": driver_lives(last),
        "exit_code": last.exit_code if last else None,
        "trials": dict(Counter(state.value for state, _, _ in states)),
    }


def record(directory: Path) -> SweepRecord:
    """Return everything that a sweep recorded."""
    database = SweepDb.open(directory)
    try:
        return read_sweep(database)
    finally:
        database.close()


def has_desktop(platform: str, environment: Mapping[str, str]) -> bool:
    """Return whether a page can be opened for people to see: on Linux only with a display."""
    return platform != "linux" or any(environment.get(name) for name in _DISPLAYS)


def report(directory: Path) -> Path:
    """Return the path of a sweep's report, written again when the sweep has gone on since."""
    path = directory / _REPORT_FILE
    files = [directory / f"{DB_FILE}{suffix}" for suffix in ("", "-wal")]
    changed = max(file.stat().st_mtime_ns for file in files if file.exists())
    if not path.exists() or path.stat().st_mtime_ns < changed:
        from sweep.report.write import write_report  # noqa: PLC0415 - matplotlib takes a second

        read = record(directory)
        write_report(read, directory, engine_of(read.experiment.engine).count)
    return path.absolute()


def written_report(directory: Path, run: RunRow | None = None) -> Path | None:
    """Return the path of the report that a run (None: any) wrote, None when it wrote none."""
    path = directory / _REPORT_FILE
    if not path.exists():
        return None
    since_s = dt.datetime.fromisoformat(run.started_utc).timestamp() if run else 0.0
    return path if path.stat().st_mtime >= since_s else None


def is_complete(directory: Path) -> bool:
    """Return whether every trial of a sweep is complete: resume would find nothing to run."""
    database = SweepDb.open(directory)
    try:
        return all(state.is_complete for state, _, _ in database.trial_states().values())
    finally:
        database.close()


def result(directory: Path) -> tuple[pd.DataFrame, Verdict]:
    """Return the table of a sweep and the verdict."""
    from sweep.analysis.verdict import verdict  # noqa: PLC0415 - pandas takes half a second
    from sweep.report.table import read_frame  # noqa: PLC0415

    read = record(directory)
    count = engine_of(read.experiment.engine).count
    frame = read_frame(read, count)
    return frame, verdict(frame, read.experiment)


def export(directory: Path, kind: str) -> str:
    """Return the table as csv or json text."""
    from sweep.report.export import to_csv, to_json  # noqa: PLC0415

    frame, _ = result(directory)
    return to_csv(frame) if kind == "csv" else to_json(frame)


def server_log(
    directory: Path, launch: str | None, environment: Mapping[str, str], *, follow: bool
) -> Iterator[bytes]:
    """Yield the server's log of the latest attempt (of the launch of that number, label or id);
    with `follow`, go on until it has ended. Raises UsageError when no server was started."""
    row, offset = _latest_attempt(directory, launch, None), 0
    spec, clock = NodeSpec.named(row.node), SystemClock()
    node = node_factory(spec, environment, clock)()
    local = LocalNode(environment)
    while True:
        path = f"{row.fetched or row.directory}/{wire.LOG_FILE}"
        where = local if row.fetched else node
        while chunk := where.read(path, offset, _LOG_CHUNK_BYTES):
            offset += len(chunk)
            yield chunk
        if not follow or row.state is not LaunchState.RUNNING:
            if chunk is None and offset == 0:
                raise UsageError(_why_no_log(row), hint="`sweep status` shows the launches")
            return
        time.sleep(_FOLLOW_S)
        row = _latest_attempt(directory, row.launch_id, row.attempt)


def _why_no_log(row: AttemptRow) -> str:
    why = "it has not come to that yet"
    if row.failure is not None:
        why = f"{row.failure.failure_class}: {row.failure.message}"
    elif row.state is not LaunchState.RUNNING:
        why = row.state.value
    return f"launch {row.launch_id} (attempt {row.attempt}) has no server log: {why}"


def _launches(plan: Plan, text: str) -> set[str]:
    """Return the ids of the launches that a text names: the number that `status` shows, a label,
    or the beginning of an id."""
    if text.isdecimal() and 0 < int(text) <= len(plan.launches):
        return {plan.launches[int(text) - 1].launch_id}
    return {
        launch.launch_id
        for launch in plan.launches
        if launch.label == text or launch.launch_id.startswith(text)
    }


def _latest_attempt(directory: Path, launch: str | None, attempt: int | None) -> AttemptRow:
    """Return the latest attempt of a launch (of all launches), or that with the number."""
    database = SweepDb.open(directory)
    try:
        chosen = None if launch is None else _launches(database.plan(), launch)
        rows = [
            row
            for row in database.attempts()
            if (chosen is None or row.launch_id in chosen) and attempt in (None, row.attempt)
        ]
        runs = database.runs()
    finally:
        database.close()
    if not rows:
        which = f"launch {launch!r}" if launch else "launch"
        note = f": {runs[-1].note}" if runs and runs[-1].note else ""
        raise UsageError(
            f"no server log: no {which} was started{note}", hint="`sweep status` shows the launches"
        )
    return rows[-1]
