"""Trials of a server that holds several step counts: proof, counts, confirmation, ranking."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from fakes.cycles import cycles_of
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload

from sweep.analysis.cautions import find_warnings
from sweep.analysis.confirmation import fastest_of
from sweep.analysis.cycles import CyclesOf
from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import verdict
from sweep.model.experiment import Constraint, Objective
from sweep.model.plan import Role
from sweep.model.record import SweepRecord
from sweep.model.states import Failure, TrialState

CODE = workload()


def taking(time_s: float, **fields: Any) -> TrialPlan:
    """A trial whose answers take so long, a little more in each window; the server counts what
    was proposed by the 8 steps that it was started with."""
    counts: dict[str, Any] = {"cycles": 40, "accepted": 60, "drafted": 40 * 8}
    times = lambda window, _: time_s * (1 + 0.001 * window)  # noqa: E731
    return TrialPlan(CODE, time_s=times, **(counts | fields))


def builder(**changes: Any) -> RecordBuilder:
    """A baseline, and a scan of 2 and 3 steps, of which 3 is the faster."""
    found = RecordBuilder(experiment(CODE, **changes))
    found.launch(BASELINE, TrialPlan(CODE), role=Role.BASELINE_FIRST)
    found.launch(steps(2), taking(0.8), role=Role.SCAN)
    found.launch(steps(3), taking(0.5), role=Role.SCAN)
    return found


def table(record: SweepRecord, cycles: CyclesOf | None = None) -> pd.DataFrame:
    """The table, by default with cycles that ran with 3 steps."""
    found = cycles_of(record, steps=3) if cycles is None else cycles
    return make_frame(record, count, None, found)


def row(frame: pd.DataFrame, name: str, role: Role = Role.SCAN) -> Any:
    """A configuration's row."""
    return frame[(frame["configuration"] == name) & (frame["role"] == role.value)].iloc[0]


def test_cycles_prove_the_steps() -> None:
    """What was in force is what the cycles ran with, and not what the server was started with."""
    three = row(table(builder().record()), "3 steps")
    assert (three["state"], three["effective_num_steps"]) == ("ok", 3)
    assert three["effective_num_draft_tokens"] == 4
    assert "steps_unproven" not in three["flags"]


def test_other_steps_are_no_result() -> None:
    """The trial counts as failed, has no rate, and is compared with nothing."""
    two = row(table(builder().record()), "2 steps")
    assert (two["state"], two["failure_class"]) == ("failed", "not_pinned")
    assert two["reason"] == "cycles ran with 3 steps, 2 were asked"
    for name in ("output_tok_s", "speedup", "vs_best"):
        assert pd.isna(two[name])


def test_without_a_recorded_cycle_the_row_is_flagged() -> None:
    """The server's own word is all there is, and the table says so."""
    frame = table(builder().record(), {})
    three = row(frame, "3 steps")
    assert "steps_unproven" in three["flags"]
    assert pd.isna(three["effective_num_steps"])
    assert any(
        text.startswith("steps_unproven: 2 steps and 3 steps") for text in find_warnings(frame)
    )


def test_draft_tokens_are_those_of_the_steps_asked_for() -> None:
    """A chain proposes a token a step; 8 a cycle would be of the largest step count."""
    three = row(table(builder().record()), "3 steps")
    assert three["drafted_tokens"] == three["cycles"] * 3
    assert three["acceptance_rate"] == pytest.approx(60 / (40 * 3))


@pytest.mark.parametrize(
    ("constraints", "fastest"),
    [((), "3 steps"), ((Constraint("output_tok_s", at_most=150.0),), "2 steps"),
     ((Constraint("output_tok_s", at_least=999.0),), None)],
)  # fmt: skip
def test_the_fastest_is_what_the_objective_puts_first(
    constraints: tuple[Constraint, ...], fastest: str | None
) -> None:
    """Of the scan alone, and within the constraints."""
    found = builder(objective=Objective(constraints=constraints))
    found.launch(steps(1), taking(0.1))
    frame = table(found.record(), {})
    frame.loc[frame["role"] == Role.SCAN.value, "launch_id"] = "scan"
    chosen = fastest_of(frame, found.experiment, "scan")
    expected = None if fastest is None else row(frame, fastest)["configuration_id"]
    assert chosen == expected


def confirmed(time_s: float) -> RecordBuilder:
    """With the launch of 3 steps alone."""
    found = builder()
    found.launch(steps(3), taking(time_s, drafted=120), role=Role.CONFIRM)
    return found


def judged(found: RecordBuilder) -> Any:
    """The verdict at the only place."""
    return verdict(table(found.record(), {}), found.experiment)


def test_a_winner_of_a_scan_is_said_to_be_unconfirmed() -> None:
    """Until a launch of its own has ended, and with its reason when that failed."""
    text = "That is of a scan, and no launch of its own has confirmed it"
    assert f"{text}." in judged(builder()).summary
    found = builder()
    found.failed_launch(steps(3), CODE, failure=Failure("oom", "no memory"), role=Role.CONFIRM)
    assert f"{text} (oom)." in judged(found).summary


def test_a_confirmation_stands_beside_the_scan() -> None:
    """It is not ranked, does not change what the scan says, and its ratio has its interval."""
    found = confirmed(0.505)
    frame = table(found.record(), {})
    alone = row(frame, "3 steps", Role.CONFIRM)
    assert alone["vs_scan"] == pytest.approx((0.1 + 0.5005) / (0.1 + 0.505505), rel=1e-3)
    assert alone["vs_scan_lo"] <= alone["vs_scan"] <= alone["vs_scan_hi"]
    assert pd.isna(alone["vs_best"])
    assert alone["speedup"] > 1.7
    assert row(frame, "3 steps")["vs_best"] == 1.0
    summary = judged(found).summary
    assert "3 steps leads with" in summary
    assert "Launched alone it has 167 tok/s, 1.82× [" in summary
    assert "its baseline, -0.8% against the scan." in summary
    assert "Each configuration but the confirmed one was launched once" in summary
    assert not [text for text in find_warnings(frame) if text.startswith("Scan:")]


def test_a_confirmation_that_differs_is_a_warning() -> None:
    """More than 5 %, with an interval that does not reach it."""
    frame = table(confirmed(0.6).record(), {})
    (text,) = [text for text in find_warnings(frame) if text.startswith("Scan:")]
    assert "3 steps on node-a" in text
    assert "differs by -14." in text


def test_a_failed_trial_stays_what_it_is() -> None:
    """Its cycles are no reason to name another one."""
    found = RecordBuilder(experiment(CODE))
    failure = Failure("request_errors", "x")
    found.launch(steps(2), taking(0.8, state=TrialState.FAILED, failure=failure), role=Role.SCAN)
    assert row(table(found.record()), "2 steps")["failure_class"] == "request_errors"
