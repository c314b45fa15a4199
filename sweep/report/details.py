"""What the report tells of each launch and of the whole sweep, with secrets redacted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sweep
from sweep.agent.wire import WIRE_VERSION
from sweep.analysis.timeline import phase_spans
from sweep.analysis.wording import number
from sweep.model.canonical import canonical
from sweep.model.plan import ServerCommand
from sweep.model.record import AttemptRecord, LaunchRecord, SweepRecord
from sweep.model.redaction import redact_argv, redact_env, redact_text, redact_values, secrets_in
from sweep.model.states import Failure

_NOTEWORTHY = (
    "claim_wait", "busy", "port_open", "healthy", "first_token", "pattern", "server_exit",
    "deadline", "stall", "trial_end", "trace", "stopping", "stopped", "dirty", "error", "outcome",
)  # fmt: skip
"""Events that people want to read beside the phases."""

_BOOKKEEPING = ("v", "n", "t_s", "utc", "event")


@dataclass(frozen=True)
class EventLine:
    """An event for people; `at_s` counts from the attempt's first event."""

    at_s: str
    event: str
    fields: str


@dataclass(frozen=True)
class AttemptDetail:
    """One start of a launch."""

    number: int
    node: str
    state: str
    failure: str | None
    intent_utc: str
    phases: tuple[tuple[str, str], ...]
    """Phase → duration [s], summed over its visits."""
    events: tuple[EventLine, ...]
    log_tail: str | None
    left: tuple[str, ...]
    directory: str | None


@dataclass(frozen=True)
class LaunchDetail:
    """One launch, as the report unfolds it."""

    launch_id: str
    label: str
    node: str
    role: str
    state: str
    failure: str | None
    argv: str
    env: tuple[tuple[str, str], ...]
    unset: tuple[str, ...]
    attempts: tuple[AttemptDetail, ...]


def launch_details(record: SweepRecord) -> tuple[LaunchDetail, ...]:
    """Return every launch of a sweep in plan order."""
    return tuple(_launch(launch) for launch in record.launches)


def provenance(record: SweepRecord) -> tuple[tuple[str, str], ...]:
    """Return names and values that say where the figures come from."""
    engine = record.experiment.engine
    attempts = [attempt for launch in record.launches for attempt in launch.attempts]
    agents = [event for item in attempts for event in item.events if event["event"] == "agent"]
    versions = sorted({item.engine_version for item in attempts if item.engine_version})
    hosts = sorted({f"{event.get('user')}@{event.get('host')}" for event in agents})
    facts = {
        "sweep": record.sweep_id,
        "created": record.created_utc,
        "program": f"sweep {sweep.__version__}, wire version {WIRE_VERSION}",
        "engine": " ".join([engine.kind, *versions]),
        "model": engine.model,
        "draft model": engine.draft_model or "none",
        "nodes": ", ".join(node.name for node in record.experiment.nodes),
        "agents ran as": ", ".join(hosts) or "none ran",
        "launches": f"{len(record.launches)}, {len(attempts)} attempts",
    }
    return tuple(facts.items())


def experiment_text(record: SweepRecord) -> str:
    """Return the experiment as JSON text, without its prompts and secrets."""
    values = canonical(record.experiment)
    for workload in values["workloads"]:
        workload["prompts"] = f"{len(workload['prompts'])} prompts"
    return json.dumps(redact_values(values), indent=1, ensure_ascii=False)


def prompts(record: SweepRecord) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return workload → prompt id and text."""
    return tuple(
        (
            workload.name,
            tuple(
                (
                    prompt.prompt_id,
                    prompt.text
                    if prompt.text is not None
                    else "\n".join(f"{role}: {content}" for role, content in prompt.messages or ()),
                )
                for prompt in workload.prompts
            ),
        )
        for workload in record.experiment.workloads
    )


def _launch(launch: LaunchRecord) -> LaunchDetail:
    server = launch.launch.server
    secrets = secrets_in(server.argv, server.env)
    return LaunchDetail(
        launch_id=launch.launch.launch_id,
        label=launch.launch.label,
        node=launch.launch.node,
        role=launch.launch.role.value,
        state=launch.state.value,
        failure=_failure(launch.failure, secrets),
        argv="\n".join(redact_argv(server.argv)),
        env=_environment(server),
        unset=server.unset,
        attempts=tuple(_attempt(attempt, secrets) for attempt in launch.attempts),
    )


def _environment(server: ServerCommand) -> tuple[tuple[str, str], ...]:
    shown = {name: value or "" for name, value in redact_env(server.env).items()}
    if server.path_first:
        behind = shown.get("PATH") or "… as the login has it"
        shown["PATH"] = ":".join([*server.path_first, behind])
    return tuple(sorted(shown.items()))


def _attempt(attempt: AttemptRecord, secrets: frozenset[str]) -> AttemptDetail:
    outcome = attempt.outcome
    tail = "\n".join(outcome.log_tail) if outcome and outcome.log_tail else None
    return AttemptDetail(
        number=attempt.attempt,
        node=attempt.node,
        state=attempt.state.value,
        failure=_failure(attempt.failure, secrets),
        intent_utc=attempt.intent_utc,
        phases=_phases(attempt.events),
        events=_events(attempt.events, secrets),
        log_tail=redact_text(tail, secrets) if tail else None,
        left=tuple(outcome.left) if outcome else (),
        directory=attempt.directory,
    )


def _phases(events: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    totals: dict[str, float] = {}
    for span in phase_spans(events):
        totals[span.phase] = totals.get(span.phase, 0.0) + span.end_s - span.start_s
    return tuple((phase, number(total_s)) for phase, total_s in totals.items())


def _events(events: Sequence[Mapping[str, Any]], secrets: frozenset[str]) -> tuple[EventLine, ...]:
    start_s = float(events[0]["t_s"]) if events else 0.0
    return tuple(
        EventLine(
            at_s=f"{event['t_s'] - start_s:.3f}",
            event=str(event["event"]),
            fields=redact_text(
                ", ".join(
                    f"{name} {value}"
                    for name, value in redact_values(event).items()
                    if name not in _BOOKKEEPING and value is not None
                ),
                secrets,
            ),
        )
        for event in events
        if event["event"] in _NOTEWORTHY
    )


def _failure(failure: Failure | None, secrets: frozenset[str]) -> str | None:
    if failure is None:
        return None
    return redact_text(f"{failure.failure_class}: {failure.message}", secrets)
