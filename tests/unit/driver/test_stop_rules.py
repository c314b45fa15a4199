"""When a sweep stops before its plan is done."""

from __future__ import annotations

import pytest
from fakes.sweeps import small_experiment, small_plan

from sweep.driver.stop_rules import Stop, failure_of, over_budget, reason_to_stop
from sweep.model.experiment import Budget
from sweep.model.plan import PlannedLaunch
from sweep.model.states import Failure, LaunchState, TrialState

PLAN = small_plan(small_experiment())
BASELINE, MAIN = PLAN.launches[:2]
OOM = Failure("oom", "no memory")
ERRORS = Failure("request_errors", "all failed")


def stop_after(
    launch: PlannedLaunch,
    failures: list[Failure | None],
    *,
    keep_going: bool = False,
    works: bool = True,
) -> Stop | None:
    """What a lane stops with after a launch, where others have worked."""
    return reason_to_stop(launch, failures, keep_going=keep_going, works=works)


def test_a_failed_launch_was_in_vain() -> None:
    """Whatever its trials say."""
    assert failure_of(LaunchState.FAILED, OOM, [(TrialState.OK, None)]) == OOM


def test_a_launch_whose_trials_all_failed_was_in_vain() -> None:
    """One usable trial is enough for it not to be."""
    failed = (TrialState.FAILED, ERRORS)
    assert failure_of(LaunchState.DONE, None, [failed, failed]) == ERRORS
    assert failure_of(LaunchState.DONE, None, [failed, (TrialState.PARTIAL, ERRORS)]) is None
    assert failure_of(LaunchState.DONE, None, [failed, (TrialState.OK, None)]) is None
    assert failure_of(LaunchState.DONE, None, []) is None


def test_success_never_pauses() -> None:
    """Not even after failures."""
    assert stop_after(MAIN, [OOM, OOM, None]) is None


def test_the_last_baseline_may_fail() -> None:
    """What was measured can be compared with the first one."""
    assert stop_after(PLAN.launches[-1], [None, None, OOM]) is None


def test_a_failed_baseline_stops_what_could_not_be_compared() -> None:
    """Its arm; and everything, as long as nothing ever worked on the node."""
    stop = stop_after(BASELINE, [OOM], works=False)
    assert stop is not None
    assert (stop.reason.failure_class, stop.arm) == ("baseline_failed", None)
    assert stop.reason.message.startswith("the baseline failed (oom: no memory), so nothing could")
    stop = stop_after(BASELINE, [None, OOM])
    assert stop is not None
    assert (stop.reason.failure_class, stop.arm) == ("baseline_failed", BASELINE.arm)
    assert f"the baseline of arm {BASELINE.arm} failed" in stop.reason.message
    assert "`sweep resume`" in stop.reason.message
    assert stop_after(BASELINE, [OOM], keep_going=True, works=False) is None


@pytest.mark.parametrize(
    ("failures", "pauses"),
    [
        ([OOM], False),
        ([OOM, OOM], False),
        ([OOM, OOM, OOM], True),
        ([ERRORS, OOM, OOM], False),
        ([OOM, None, OOM, OOM], False),
        ([ERRORS, OOM, OOM, OOM], True),
    ],
)
def test_three_alike_in_a_row(failures: list[Failure | None], pauses: bool) -> None:
    """Alike, in a row, and three of them."""
    stop = stop_after(MAIN, failures)
    assert (stop is not None) is pauses
    assert stop is None or stop.arm is None
    assert stop_after(MAIN, failures, keep_going=True) is None


def test_a_claim_that_is_held_pauses_in_any_case() -> None:
    """The next launch would wait for the same GPUs, or fail to claim them as well."""
    for failure_class in ("claim_timeout", "claim_failed"):
        failure = Failure(failure_class, "bob")
        assert stop_after(MAIN, [failure], keep_going=True) == Stop(failure)


def test_budgets() -> None:
    """Used up means reached; no budget is never used up."""
    assert over_budget(Budget(), 10**6, 10**6) is None
    assert over_budget(Budget(launches=3), 2, 0) is None
    assert over_budget(Budget(launches=3), 3, 0) is not None
    assert over_budget(Budget(hours=1.5), 0, 1.4) is None
    assert over_budget(Budget(hours=1.5), 0, 1.5) is not None
