"""The server's own counters before and after each window, read from files fetched from nodes."""

from __future__ import annotations

from pathlib import Path

from sweep.agent.wire import SCRAPES_DIR
from sweep.analysis.measurement import complete_windows
from sweep.analysis.server import Scraped, ScrapedOf
from sweep.engines import engine_of
from sweep.model.record import AttemptRecord, SweepRecord
from sweep.ports import Engine, ServerCounters

_METRICS = "metrics"


def read_scrapes(record: SweepRecord) -> ScrapedOf:
    """Return what was scraped around the complete windows of every trial that counts."""
    engine = engine_of(record.experiment.engine)
    attempts = {
        (attempt.launch_id, attempt.attempt): attempt
        for launch in record.launches
        for attempt in launch.attempts
        if attempt.directory is not None
    }
    found: dict[tuple[str, int], dict[str, Scraped]] = {}
    for trial in record.trials:
        key = (trial.launch.launch_id, trial.attempt or 0)
        attempt = attempts.get(key)
        scraped = _scraped(attempt, trial.trial.trial_id, engine) if attempt is not None else None
        if scraped is not None:
            found.setdefault(key, {})[trial.trial.trial_id] = scraped
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
