"""From the agent's facts to states and classes of failure: the same for every engine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.agent.wire import Outcome, Pattern, RequestRecord
from sweep.model.plan import PlannedTrial
from sweep.model.redaction import redact_text
from sweep.model.states import Failure, LaunchState, TrialState
from sweep.ports import Engine

MAX_ERROR_SHARE = 0.05
BEFORE_TRIALS = frozenset({"claim", "clean", "start", "load", "ready"})
TRACING = "trace"
"""When all is measured: a server that a profiler took down there did its work, and the trace says
that it is missing."""
_OF_THE_SERVER = ("server_exit", "stalled", "deadline")
HTTP_OK = 200
WITHOUT_GRAPH = "without_graph"
"""Milestone by which an engine's log tells that a batch was decoded outside the CUDA graphs."""
_LONGEST_QUOTE = 300
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class LogSign:
    """A line of an engine's log that names a failure: the regular expression, class, message."""

    name: str
    regex: str
    failure_class: str
    message: str

    @property
    def pattern(self) -> Pattern:
        """As the agent looks for it."""
        return Pattern(self.name, self.regex)


def quotable(line: str) -> str:
    """Return a line fit for a terminal: no control characters, no passwords, not endless."""
    plain = _ESCAPE.sub("", line)
    shown = "".join(sign if sign.isprintable() else " " for sign in plain).strip()
    return redact_text(shown, frozenset())[:_LONGEST_QUOTE]


def classify_outcome(outcome: Outcome, signs: Sequence[LogSign]) -> Failure | None:
    """Name why a launch failed, by the first of `signs` that its log showed, else by its end.

    None: it ended as it should, or because someone stopped it.
    """
    if outcome.end == "stopped" or (outcome.phase == TRACING and outcome.end in _OF_THE_SERVER):
        return None
    for sign in signs:
        if sign.name in outcome.patterns:
            return Failure(sign.failure_class, f"{sign.message}{_detail(outcome)}")
    if outcome.end == "done":
        return None
    return _by_end(outcome)


def _detail(outcome: Outcome) -> str:
    return f" ({outcome.detail})" if outcome.detail else ""


def _by_end(outcome: Outcome) -> Failure:
    where = f"in phase {outcome.phase}{_detail(outcome)}"
    if outcome.end == "server_exit":
        return _server_exit(outcome, where)
    if outcome.end == "stalled":
        return _stalled(outcome.detail, where)
    if outcome.end == "start_failed":
        missing = "No such file" in (outcome.detail or "")
        failure_class = "missing_file" if missing else "bad_args"
        return Failure(failure_class, f"the server's command cannot be executed{_detail(outcome)}")
    failure_class, what = {
        "load_timeout": ("load_timeout", "the server was not healthy before the load deadline"),
        "not_ready": ("not_ready", "the server was healthy, but generated no token in time"),
        "claim_timeout": ("claim_timeout", "someone else kept the GPUs"),
        "claim_failed": ("claim_failed", "the node's GPUs cannot be claimed"),
        "deadline": ("stalled", "the deadline of the launch passed"),
        "error": ("unknown", "the agent itself failed"),
    }.get(outcome.end, ("unknown", f"the launch ended with {outcome.end!r}"))
    return Failure(failure_class, f"{what}, {where}")


def _server_exit(outcome: Outcome, where: str) -> Failure:
    code = None if outcome.server is None else outcome.server.returncode
    how = "ended" if code is None else f"ended with exit code {code}"
    if code is not None and code < 0:
        how = f"was killed by signal {-code}"
    failure_class = "unknown" if outcome.phase in BEFORE_TRIALS else "server_died"
    return Failure(failure_class, f"the server {how} {where}: see its log")


def _stalled(detail: str | None, where: str) -> Failure:
    if "gpu_busy" in (detail or ""):
        return Failure("nccl_hang", f"no progress with the GPUs busy, {where}")
    return Failure("stalled", f"no progress {where}")


def judge_launch(engine: Engine, outcome: Outcome | None) -> tuple[LaunchState, Failure | None]:
    """Return the state of an attempt that ended; outcome None: its agent died without one."""
    if outcome is None:
        message = "the agent ended without an outcome: killed, or its machine went down"
        return LaunchState.INTERRUPTED, Failure("agent_lost", message)
    if outcome.end == "stopped":
        return LaunchState.INTERRUPTED, None
    failure = engine.classify_launch(outcome)
    return (LaunchState.DONE, None) if failure is None else (LaunchState.FAILED, failure)


def judge_trial(
    engine: Engine,
    trial: PlannedTrial,
    end: Mapping[str, Any] | None,
    records: Sequence[RequestRecord],
    outcome: Outcome | None,
) -> tuple[TrialState, Failure | None]:
    """Return the state of one trial of an attempt that ended.

    `end` is the trial's `trial_end` event, None when it never came; `records` are its measured
    requests; `outcome` is the launch's, None when its agent died.
    """
    if end is None:
        return _without_end(engine, outcome)
    if end["end"] == "stopped":
        return TrialState.INTERRUPTED, None
    failure = _speculation_refused(engine, trial, outcome) or engine.classify_trial(trial, records)
    if failure is not None:
        return TrialState.FAILED, failure
    failure = _end_failure(engine, end, outcome) or _record_failure(records)
    windows, needed = int(end["windows"]), trial.workload.repeats.min
    if failure is None and windows < needed:
        failure = Failure("unknown", f"{windows} whole windows, but {needed} are the least")
    if failure is None:
        return TrialState.OK, None
    usable = windows > 0 and any(_is_good(record) and record.output_tokens for record in records)
    return (TrialState.PARTIAL if usable else TrialState.FAILED), failure


def _without_end(engine: Engine, outcome: Outcome | None) -> tuple[TrialState, Failure | None]:
    state, failure = judge_launch(engine, outcome)
    if state is LaunchState.INTERRUPTED:
        return TrialState.INTERRUPTED, failure
    if failure is None:
        return TrialState.FAILED, Failure("unknown", "the launch ended without ending this trial")
    if outcome is not None and outcome.phase not in BEFORE_TRIALS:
        # An earlier trial of the same server took it down; this one never had its turn.
        return TrialState.NOT_RUN, None
    return TrialState.FAILED, failure


def _speculation_refused(
    engine: Engine, trial: PlannedTrial, outcome: Outcome | None
) -> Failure | None:
    if outcome is None or trial.configuration.is_baseline:
        return None
    failure = engine.classify_launch(outcome)
    refused = failure is not None and failure.failure_class == "speculation_inactive"
    return failure if refused else None


def _end_failure(engine: Engine, end: Mapping[str, Any], outcome: Outcome | None) -> Failure | None:
    how, detail = end["end"], end.get("detail")
    where = f"in the trial{f' ({detail})' if detail else ''}"
    if how == "complete":
        return None
    if how == "server_exit":
        failure = None if outcome is None else engine.classify_launch(outcome)
        return failure or Failure("server_died", f"the server ended {where}")
    if how == "stalled":
        return _stalled(detail, where)
    if how == "deadline":
        failure_class = "request_timeout" if "request" in (detail or "") else "stalled"
        return Failure(failure_class, f"a deadline passed {where}")
    if how == "not_pinned":
        message = f"the server does not run with the settings that the trial asks for {where}"
        return Failure("not_pinned", message)
    return Failure("request_errors", f"too many requests failed {where}")


def _is_good(record: RequestRecord) -> bool:
    return record.error is None and record.status == HTTP_OK


def _record_failure(records: Sequence[RequestRecord]) -> Failure | None:
    failed = [record for record in records if not _is_good(record)]
    if len(failed) > MAX_ERROR_SHARE * len(records):
        first = failed[0].error or f"HTTP status {failed[0].status}"
        message = f"{len(failed)} of {len(records)} requests failed, first: {first}"
        return Failure("request_errors", message)
    counts = [record.output_tokens for record in records if record.output_tokens is not None]
    if not counts:
        return Failure("short_output", "no request reported how many tokens it generated")
    if sum(counts) == 0:
        return Failure("short_output", "no request generated a token")
    return None
