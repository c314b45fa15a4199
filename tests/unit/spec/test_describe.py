"""A plan for people: rows, counts, notes, and how long it takes."""

from __future__ import annotations

import dataclasses
import json

from fakes.engine import FakeEngine
from fakes.files import SMALL, SWEEP, load

from sweep.model.experiment import Budget
from sweep.spec.describe import PlanSummary, describe_plan
from sweep.spec.estimate import ExpectedLoad, estimate
from sweep.spec.plan import make_plan


def summary(*overrides: str, budget: Budget | None = None) -> PlanSummary:
    """Describe the plan of a small file."""
    plan = make_plan(load(SMALL + SWEEP, overrides), FakeEngine())
    return describe_plan(
        plan, estimate(plan.launches, {"local": ExpectedLoad(900)}), budget or Budget()
    )


def test_rows_and_counts() -> None:
    """Every launch is a row; the counts add up and are said in one line."""
    described = summary(
        "sweep.topk=[1, 2]", "sweep.num_draft_tokens=[4, 9]", "exclude=[{num_steps: 1, topk: 2}]"
    )
    assert described.headline == (
        "12 configurations asked, 2 excluded, 1 invalid, 3 merged: 8 launches, 16 trials"
    )
    assert [row.position for row in described.rows] == list(range(1, 9))
    row = described.rows[2]
    assert (row.label, row.role, row.arm, row.trials) == ("2 steps", "main", "default", 2)
    assert row.argv[:5] == ("server", "--model", "m.gguf", "--port", "0")


def test_skipped_configurations_have_their_reason() -> None:
    """What cannot run is shown with the rule."""
    described = summary("sweep.topk=[2]", "sweep.num_steps=[1]", "sweep.num_draft_tokens=[8]")
    (skipped,) = described.skipped
    assert skipped.label == "1 step, topk 2, 8 tokens"
    assert "topk^2" in skipped.reason
    assert described.headline == "1 configuration asked, 1 invalid: 0 launches, 0 trials"


def test_a_budget_that_ends_the_sweep_early_is_a_note() -> None:
    """Both limits are compared with the plan: 5 launches, of 900 s each for the load alone."""
    assert summary(budget=Budget(launches=5, hours=1.25)).notes == ()
    notes = summary(budget=Budget(launches=4, hours=1.2)).notes
    assert notes == (
        "the budget ends the sweep after 4 launches",
        "the budget ends the sweep after 1.2 hours",
    )


def test_too_few_windows_are_warned_of_before_they_cost_a_launch() -> None:
    """Once for a workload, from the bound that no row can be above."""
    assert summary().warnings == ()
    assert summary("workloads.0.repeats={min: 2, max: 3}").warnings == ()
    assert summary("workloads.0.repeats={min: 2, max: 2}").warnings == (
        (
            "workload code: at most 2 windows are measured, and below 3 the intervals are weak or "
            "missing: set repeats.max to 3 or more"
        ),
    )


def test_the_summary_is_json_without_secrets() -> None:
    """It can be printed by --json; what looks like a secret is blanked out."""
    described = summary("engine.env.HF_TOKEN=hf_abcdef", "engine.args.api-key=12345")
    text = json.dumps(dataclasses.asdict(described))
    assert "hf_abcdef" not in text
    assert "12345" not in text
    assert "HF_TOKEN" in text


def test_before_anything_was_measured_only_loads_count() -> None:
    """The estimate says that it is a lower bound, and what it assumes."""
    plan = make_plan(load(SMALL + SWEEP), FakeEngine())
    expected = estimate(plan.launches, {"local": ExpectedLoad(900)})
    assert (expected.seconds, expected.is_lower_bound) == (5 * 900, True)
    assert "5 loads of 900 s (assumed)" in expected.basis


def test_measured_medians_replace_what_was_assumed() -> None:
    """Loads and trials count by their medians; a place never measured, by the median of all."""
    plan = make_plan(load(SMALL + SWEEP), FakeEngine())
    remaining = plan.launches[3:]
    expected = estimate(
        remaining,
        {"local": ExpectedLoad(900)},
        loads_s=[10, 30, 20],
        trials_s={("code", 1): [4, 6, 5]},
    )
    assert expected.seconds == 2 * 20 + 2 * 5 + 2 * 5
    assert not expected.is_lower_bound
    assert expected.basis == "2 loads of 20 s (median of 3) and 4 trials by the median of 3"
    apart = estimate(
        remaining, {"local": ExpectedLoad(900)}, trials_s={("code", 1): [5], ("code", 2): [7]}
    )
    assert apart.seconds == 2 * 900 + 2 * 5 + 2 * 7


def test_nothing_left_takes_no_time() -> None:
    """An empty plan is estimated as such."""
    assert estimate((), {}, trials_s={("code", 1): [5]}).seconds == 0


def test_nodes_work_at_the_same_time() -> None:
    """The estimate is that of the node that takes longest."""
    two = ("nodes=[{host: a}, {host: b}]", "sweep={num_steps: 1, nccl: {ll: {A: 1}}}")
    plan = make_plan(load(SMALL, two), FakeEngine())
    assert [launch.node for launch in plan.launches] == ["a"] * 3 + ["b"] * 5
    expected = estimate(plan.launches, {"a": ExpectedLoad(900), "b": ExpectedLoad(500)})
    assert expected.seconds == 3 * 900
    assert expected.basis.endswith("on the node that takes longest of 2")
    assert (
        estimate(plan.launches, {"a": ExpectedLoad(900), "b": ExpectedLoad(600)}).seconds == 5 * 600
    )
