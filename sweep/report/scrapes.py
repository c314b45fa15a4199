"""The server's own counters before and after each window, read from files fetched from nodes."""

from __future__ import annotations

from pathlib import Path

from sweep.agent.wire import SCRAPES_DIR
from sweep.analysis.measurement import complete_windows
from sweep.analysis.server import Scraped, ScrapedOf
from sweep.engines import engine_of
from sweep.model.record import AttemptRecord, SweepRecord
from sweep.ports import Engine, ServerCounters
from sweep.report.fetched import fetched_trials

_METRICS = "metrics"


def read_scrapes(record: SweepRecord) -> ScrapedOf:
    """Return what was scraped around the complete windows of every trial that counts."""
    engine = engine_of(record.experiment.engine)
    found: dict[tuple[str, int], dict[str, Scraped]] = {}
    for trial, attempt in fetched_trials(record):
        scraped = _scraped(attempt, trial.trial.trial_id, engine)
        if scraped is not None:
            own = found.setdefault((attempt.launch_id, attempt.attempt), {})
            own[trial.trial.trial_id] = scraped
    return found


def _scraped(attempt: AttemptRecord, trial_id: str, engine: Engine) -> Scraped | None:
    folder = Path(str(attempt.directory)) / SCRAPES_DIR

    def read(window: int, when: str) -> ServerCounters:
        path = folder / f"{trial_id}.{window}.{when}.{_METRICS}"
        return engine.server_counters(path.read_text(encoding="utf-8", errors="replace"))

    windows = complete_windows(attempt.events, trial_id)
    try:
        return [(read(window, "before"), read(window, "after")) for window in windows]
    except FileNotFoundError:
        return None
