"""When a sweep stops before its plan is done. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sweep.model.experiment import Budget
from sweep.model.plan import PlannedLaunch, Role
from sweep.model.states import Failure, LaunchState, TrialState

Judgement = tuple[TrialState, Failure | None]

_SAME_FAILURES = 3
"""Launches in a row that fail alike before the sweep stops: the next would fail as well."""


def failure_of(
    state: LaunchState, failure: Failure | None, trials: Collection[Judgement]
) -> Failure | None:
    """Return why a launch was in vain: its own failure, or that of its trials when all of them
    failed; None when something of it can be used, or when it was interrupted."""
    if state is LaunchState.FAILED:
        return failure
    reasons = [reason for trial, reason in trials if trial is TrialState.FAILED and reason]
    return reasons[0] if reasons and len(reasons) == len(trials) else None


def reason_to_pause(
    launch: PlannedLaunch, failures: Sequence[Failure | None], *, keep_going: bool
) -> Failure | None:
    """Return why nothing more should be launched after `launch`; `failures` are those of the
    lane's launches so far (None: not in vain), its own at the end."""
    failure = failures[-1]
    if failure is None:
        return None
    if failure.failure_class == "claim_timeout":
        return failure
    if keep_going:
        return None
    if launch.role is Role.BASELINE_FIRST:
        return Failure(
            "baseline_failed",
            f"the baseline failed ({failure.failure_class}: {failure.message}), so nothing could "
            "be compared; mend it and `sweep resume`, or go on without with --keep-going",
        )
    last = [each and each.failure_class for each in failures[-_SAME_FAILURES:]]
    if last == [failure.failure_class] * _SAME_FAILURES:
        return Failure(
            "same_failure",
            f"{_SAME_FAILURES} launches in a row failed alike ({failure.failure_class}: "
            f"{failure.message}); mend the cause and `sweep resume`, or try each once with "
            "--keep-going",
        )
    return None


def over_budget(budget: Budget, launches: int, hours: float) -> Failure | None:
    """Return that the sweep's budget is used up, given what all its runs have used."""
    if budget.launches is not None and launches >= budget.launches:
        return Failure("budget", f"the budget of {budget.launches} launches is used up")
    if budget.hours is not None and hours >= budget.hours:
        return Failure("budget", f"the budget of {budget.hours:g} hours is used up")
    return None
