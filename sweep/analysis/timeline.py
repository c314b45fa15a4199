"""When things happened: durations from one boot's monotonic clock, places in time from UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sweep.model.record import AttemptRecord, SweepRecord
from sweep.model.states import Failure, LaunchState

Event: TypeAlias = Mapping[str, Any]

STAGES = {
    "wait": ("claim", "clean"),
    "load": ("start", "load", "ready"),
    "warm-up": ("pin", "warmup"),
    "measure": ("flush", "throwaway", "scrape", "measure", "trace"),
    "stop": ("collect", "stop", "verify", "release"),
}
"""What people see of the agent's phases, in order."""

_STAGE_OF = {phase: stage for stage, phases in STAGES.items() for phase in phases}


@dataclass(frozen=True)
class PhaseSpan:
    """One visit of a phase; times are of the node's monotonic clock [s]."""

    phase: str
    trial: str | None
    window: int | None
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Span:
    """A stretch of one stage; offsets [s] from the first event of the sweep."""

    stage: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class AttemptLine:
    """One start of a launch on the time line; `spans` is empty when nothing is known of it."""

    label: str
    node: str
    attempt: int
    state: LaunchState
    failure: Failure | None
    spans: tuple[Span, ...]


def load_s(events: Iterable[Event]) -> float | None:
    """Return the time from the server's start to its first generated token [s], None: not both."""
    times = {event["event"]: event["t_s"] for event in events}
    if "server_started" not in times or "first_token" not in times:
        return None
    return float(times["first_token"] - times["server_started"])


def trial_start_utc(events: Sequence[Event], trial_id: str) -> str | None:
    """Return the time of day of the trial's first event, None: it never began."""
    return next((event["utc"] for event in events if event.get("trial") == trial_id), None)


def trial_wall_s(events: Sequence[Event], trial_id: str) -> float | None:
    """Return the time from the trial's first event to its end [s], None: it did not end."""
    times = [event["t_s"] for event in events if event.get("trial") == trial_id]
    ended = any(
        event["event"] == "trial_end" and event.get("trial") == trial_id for event in events
    )
    return float(times[-1] - times[0]) if ended else None


def phase_spans(events: Sequence[Event]) -> tuple[PhaseSpan, ...]:
    """Return every visit of a phase; the last one ends with the last event."""
    entered = [event for event in events if event["event"] == "phase"]
    ends = [event["t_s"] for event in entered[1:]] + [events[-1]["t_s"] if events else 0.0]
    return tuple(
        PhaseSpan(
            event["phase"], event.get("trial"), event.get("window"), event["t_s"], float(end_s)
        )
        for event, end_s in zip(entered, ends, strict=False)
    )


def attempt_lines(record: SweepRecord) -> tuple[AttemptLine, ...]:
    """Return every attempt of a sweep, node by node, in the order in which they began.

    Within one boot of one node, places in time come from its monotonic clock, tied to the time of
    day once, at the first event; attempts of other boots and nodes are placed by time of day.
    """
    attempts = [
        (launch.launch.label, attempt) for launch in record.launches for attempt in launch.attempts
    ]
    origins = _origins(attempt for _, attempt in attempts)
    placed = [
        (origin_s, label, attempt)
        for (label, attempt), origin_s in zip(attempts, origins, strict=True)
    ]
    begins = [o + a.events[0]["t_s"] for o, _, a in placed if o is not None and a.events]
    zero_s = min(begins, default=0.0)
    lines = [_line(label, attempt, origin_s, zero_s) for origin_s, label, attempt in placed]
    nodes = list(dict.fromkeys(line.node for line in lines))
    return tuple(
        sorted(
            lines,
            key=lambda line: (
                nodes.index(line.node),
                line.spans[0].start_s if line.spans else 0.0,
            ),
        )
    )


def _line(label: str, attempt: AttemptRecord, origin_s: float | None, zero_s: float) -> AttemptLine:
    spans: list[Span] = []
    for visit in phase_spans(attempt.events) if origin_s is not None else ():
        stage = _STAGE_OF.get(visit.phase)
        if stage is None or origin_s is None:
            continue
        start_s, end_s = (origin_s + at - zero_s for at in (visit.start_s, visit.end_s))
        if spans and spans[-1].stage == stage:
            start_s = spans.pop().start_s
        spans.append(Span(stage, start_s, end_s))
    return AttemptLine(
        label, attempt.node, attempt.attempt, attempt.state, attempt.failure, tuple(spans)
    )


def _origins(attempts: Iterable[AttemptRecord]) -> list[float | None]:
    """Time of day at monotonic zero [s], the same for all attempts of one boot; None: no events."""
    by_boot: dict[tuple[str, str], float] = {}
    origins: list[float | None] = []
    for attempt in attempts:
        if not attempt.events:
            origins.append(None)
            continue
        first = attempt.events[0]
        origin_s = dt.datetime.fromisoformat(first["utc"]).timestamp() - float(first["t_s"])
        boot = first.get("boot_id")
        if boot is not None:
            origin_s = by_boot.setdefault((attempt.node, boot), origin_s)
        origins.append(origin_s)
    return origins
