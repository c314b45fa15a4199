"""When a sweep stops before its plan is done. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sweep.model.experiment import Budget
from sweep.model.plan import PlannedLaunch, Role
from sweep.model.states import Failure, LaunchState, TrialState

Judgement = tuple[TrialState, Failure | None]

_SAME_FAILURES = 3
"""Launches in a row that fail alike before the sweep stops: the next would fail as well."""


@dataclass(frozen=True)
class Stop:
    """Why nothing more should be launched of an arm; `arm` None: of anything on the lane."""

    reason: Failure
    arm: str | None = None


def failure_of(
    state: LaunchState, failure: Failure | None, trials: Collection[Judgement]
) -> Failure | None:
    """Return why a launch was in vain: its own failure, or that of its trials when all of them
    failed; None when something of it can be used, or when it was interrupted."""
    if state is LaunchState.FAILED:
        return failure
    reasons = [reason for trial, reason in trials if trial is TrialState.FAILED and reason]
    return reasons[0] if reasons and len(reasons) == len(trials) else None


def reason_to_stop(
    launch: PlannedLaunch, failures: Sequence[Failure | None], *, keep_going: bool, works: bool
) -> Stop | None:
    """Return what should not be launched after `launch`; `failures` are those of the lane's
    launches so far (None: not in vain), its own at the end. `works`: whether any trial of the
    node ever gave results: until then, what ails one arm's baseline ails the next one's too."""
    failure = failures[-1]
    if failure is None:
        return None
    if failure.failure_class in ("claim_timeout", "claim_failed"):
        return Stop(failure)
    if keep_going:
        return None
    if launch.role is Role.BASELINE_FIRST:
        return _without_baseline(launch, failure, works=works)
    last = [each and each.failure_class for each in failures[-_SAME_FAILURES:]]
    if last == [failure.failure_class] * _SAME_FAILURES:
        message = (
            f"{_SAME_FAILURES} launches in a row failed alike ({failure.failure_class}: "
            f"{failure.message}); mend the cause and `sweep resume`, or try each once with "
            "--keep-going"
        )
        return Stop(Failure("same_failure", message))
    return None


def _without_baseline(launch: PlannedLaunch, failure: Failure, *, works: bool) -> Stop:
    whose = f" of arm {launch.arm}" if works else ""
    what = "nothing of that arm" if works else "nothing"
    message = (
        f"the baseline{whose} failed ({failure.failure_class}: {failure.message}), so {what} could "
        "be compared; mend it and `sweep resume`, or go on without with --keep-going"
    )
    return Stop(Failure("baseline_failed", message), launch.arm if works else None)


def over_budget(budget: Budget, launches: int, hours: float) -> Failure | None:
    """Return that the sweep's budget is used up, given what all its runs have used."""
    if budget.launches is not None and launches >= budget.launches:
        return Failure("budget", f"the budget of {budget.launches} launches is used up")
    if budget.hours is not None and hours >= budget.hours:
        return Failure("budget", f"the budget of {budget.hours:g} hours is used up")
    return None
