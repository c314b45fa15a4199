"""States of launches and trials, and classes of failure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LaunchState(StrEnum):
    """State of a launch; missing is never a state of success."""

    PLANNED = "planned"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"

    @property
    def is_finished(self) -> bool:
        """Whether nothing more happens to it in this run."""
        return self not in (LaunchState.PLANNED, LaunchState.RUNNING)


class TrialState(StrEnum):
    """State of a trial."""

    PLANNED = "planned"
    OK = "ok"
    PARTIAL = "partial"
    FAILED = "failed"
    SKIPPED_INVALID = "skipped_invalid"
    PRUNED = "pruned"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"

    @property
    def is_complete(self) -> bool:
        """Whether it counts as complete for the exit code."""
        return self in (TrialState.OK, TrialState.SKIPPED_INVALID, TrialState.PRUNED)


@dataclass(frozen=True)
class Failure:
    """Why a launch or a trial failed: a class from a short list, and what to tell people."""

    failure_class: str
    """oom, bad_args, missing_file, not_compiled, port_in_use, nccl_hang, graph_capture,
    load_timeout, stalled, server_died, not_ready, not_pinned, speculation_inactive,
    request_errors, short_output, node_dirty, claim_timeout, claim_failed, agent_lost,
    request_timeout, unknown."""
    message: str
