"""What is said of the plan."""

from __future__ import annotations

from dataclasses import replace

from fakes.sweeps import small_experiment, small_plan

from sweep.check import planning
from sweep.check.line import Level
from sweep.model.experiment import Budget, Experiment, Repeats
from sweep.model.plan import Configuration, Plan, SkippedConfiguration
from sweep.spec.describe import PlanSummary, describe_plan
from sweep.spec.estimate import Estimate


def summary(plan: Plan) -> PlanSummary:
    """A plan described."""
    return describe_plan(plan, Estimate(1.0, True, "x"), Budget())


def test_a_plan_without_a_flaw() -> None:
    """Its counts."""
    (line,) = planning.lines(summary(small_plan(windowed(3))))
    assert (line.level, line.subject) == (Level.OK, "plan")
    assert line.finding.endswith("4 launches, 8 trials, at least 1 s: x")


def windowed(most: int) -> Experiment:
    """A small experiment whose trials have at most so many windows."""
    experiment = small_experiment()
    repeats = Repeats(min=1, max=most)
    workloads = tuple(replace(each, repeats=repeats) for each in experiment.workloads)
    return replace(experiment, workloads=workloads)


def test_too_few_windows_are_a_warning() -> None:
    """For each workload."""
    _, *found = planning.lines(summary(small_plan(windowed(2))))
    assert [line.level for line in found] == [Level.WARNING] * 2
    assert found[0].finding.startswith("workload code: at most 2 windows are measured")


def test_what_is_not_launched_is_told_by_reason() -> None:
    """Once for all configurations of one reason; notes are no warnings."""
    reasons = ["too few"] * 4 + ["no backend"]
    skipped = tuple(
        SkippedConfiguration(f"c{steps}", Configuration("a", steps, 1, steps + 1), reason)
        for steps, reason in enumerate(reasons, 1)
    )
    plan = Plan((), skipped, asked=5, notes=("tokens were set",))
    _, first, second, note = planning.lines(summary(plan))
    assert first.level is second.level is Level.WARNING
    assert first.finding == (
        "4 configurations not launched (1 step, 2 steps, 3 steps and 1 more): too few"
    )
    assert second.finding == "1 configuration not launched (5 steps): no backend"
    assert (note.level, note.finding) == (Level.OK, "tokens were set")
