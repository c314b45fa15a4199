"""What a sweep has recorded, as the store reads it and the analysis takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.agent.wire import Outcome, RequestRecord
from sweep.model.experiment import Experiment
from sweep.model.plan import PlannedLaunch, PlannedTrial, SkippedConfiguration
from sweep.model.states import Failure, LaunchState, TrialState


@dataclass(frozen=True)
class AttemptRecord:
    """One start of a launch; `events` are the lines of events.jsonl in order."""

    launch_id: str
    attempt: int
    node: str
    intent_utc: str
    state: LaunchState
    failure: Failure | None
    events: tuple[Mapping[str, Any], ...]
    requests: tuple[RequestRecord, ...]
    outcome: Outcome | None
    directory: str | None
    """Local directory of the fetched files (server.log, chunks.jsonl, …); None: not fetched."""
    engine_version: str | None = None
    """As the node reported it; None: it was not asked or did not say."""


@dataclass(frozen=True)
class TrialRecord:
    """A planned trial and what became of it.

    `attempt` is the attempt whose records count: the ok one, else the latest; None: never tried.
    """

    trial: PlannedTrial
    launch: PlannedLaunch
    state: TrialState
    failure: Failure | None
    attempt: int | None


@dataclass(frozen=True)
class LaunchRecord:
    """A planned launch and what became of it."""

    launch: PlannedLaunch
    state: LaunchState
    failure: Failure | None
    attempts: tuple[AttemptRecord, ...]


@dataclass(frozen=True)
class SweepRecord:
    """Everything of one sweep that belongs to its current plan."""

    sweep_id: str
    experiment: Experiment
    launches: tuple[LaunchRecord, ...]
    trials: tuple[TrialRecord, ...]
    skipped: tuple[SkippedConfiguration, ...]
    created_utc: str
    driver_note: str | None = None
    """Why the driver ended early (a failed baseline, a dirty node, …)."""
