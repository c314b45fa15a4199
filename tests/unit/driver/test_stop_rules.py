"""When a sweep stops before its plan is done."""

from __future__ import annotations

import pytest
from fakes.sweeps import small_experiment, small_plan

from sweep.driver.stop_rules import failure_of, over_budget, reason_to_pause
from sweep.model.experiment import Budget
from sweep.model.states import Failure, LaunchState, TrialState

PLAN = small_plan(small_experiment())
BASELINE, MAIN = PLAN.launches[:2]
OOM = Failure("oom", "no memory")
ERRORS = Failure("request_errors", "all failed")


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
    assert reason_to_pause(MAIN, [OOM, OOM, None], keep_going=False) is None


def test_the_last_baseline_may_fail() -> None:
    """What was measured can be compared with the first one."""
    assert reason_to_pause(PLAN.launches[-1], [None, None, OOM], keep_going=False) is None
    reason = reason_to_pause(BASELINE, [OOM], keep_going=False)
    assert reason is not None
    assert reason.failure_class == "baseline_failed"


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
    assert (reason_to_pause(MAIN, failures, keep_going=False) is not None) is pauses
    assert reason_to_pause(MAIN, failures, keep_going=True) is None


def test_a_claim_that_is_held_pauses_in_any_case() -> None:
    """The next launch would wait for the same GPUs."""
    taken = Failure("claim_timeout", "bob")
    assert reason_to_pause(MAIN, [taken], keep_going=True) == taken


def test_budgets() -> None:
    """Used up means reached; no budget is never used up."""
    assert over_budget(Budget(), 10**6, 10**6) is None
    assert over_budget(Budget(launches=3), 2, 0) is None
    assert over_budget(Budget(launches=3), 3, 0) is not None
    assert over_budget(Budget(hours=1.5), 0, 1.4) is None
    assert over_budget(Budget(hours=1.5), 0, 1.5) is not None
