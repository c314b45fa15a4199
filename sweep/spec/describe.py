"""A plan in rows and counts, for a person's table or for --json (`dataclasses.asdict`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sweep.model.experiment import FEW_WINDOWS, Budget
from sweep.model.plan import Plan, PlannedLaunch
from sweep.model.redaction import redact_argv, redact_env
from sweep.spec.estimate import Estimate
from sweep.spec.scans import with_confirmations


@dataclass(frozen=True)
class LaunchRow:
    """One planned launch; `position` counts from 1."""

    position: int
    launch_id: str
    label: str
    role: str
    arm: str
    node: str
    trials: int
    argv: tuple[str, ...]
    """With the port still to be chosen, secrets blanked out."""
    env: Mapping[str, str | None]
    unset: tuple[str, ...]
    path_first: tuple[str, ...]
    """Directories put in front of the PATH that the node's login has."""


@dataclass(frozen=True)
class SkippedRow:
    """A configuration that was asked for and cannot run, with the rule that says so."""

    configuration_id: str
    label: str
    reason: str


@dataclass(frozen=True)
class PlanSummary:
    """What a sweep will do; counts are of configurations unless named otherwise."""

    asked: int
    excluded: int
    invalid: int
    merged: int
    launches: int
    trials: int
    estimate: Estimate
    rows: tuple[LaunchRow, ...]
    skipped: tuple[SkippedRow, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    """What makes results weaker than the launches that they cost."""

    @property
    def headline(self) -> str:
        """The counts in one line."""
        parts = [f"{_counted(self.asked, 'configuration')} asked"]
        for count, what in (
            (self.excluded, "excluded"),
            (self.invalid, "invalid"),
            (self.merged, "merged"),
        ):
            parts += [f"{count} {what}"] if count else []
        launches = f"{self.launches} launch{'' if self.launches == 1 else 'es'}"
        return f"{', '.join(parts)}: {launches}, {_counted(self.trials, 'trial')}"


def describe_plan(plan: Plan, estimate: Estimate, budget: Budget) -> PlanSummary:
    """Return a plan's rows, counts and notes; a budget that it will not keep is a note."""
    rows = tuple(_row(position, launch) for position, launch in enumerate(plan.launches, 1))
    return PlanSummary(
        asked=plan.asked,
        excluded=plan.excluded,
        invalid=len(plan.skipped),
        merged=plan.merged,
        launches=len(plan.launches),
        trials=sum(row.trials for row in rows),
        estimate=estimate,
        rows=rows,
        skipped=tuple(
            SkippedRow(item.configuration_id, item.configuration.label, item.reason)
            for item in plan.skipped
        ),
        notes=(*plan.notes, *_budget_notes(plan, estimate, budget)),
        warnings=tuple(_few_windows(plan)),
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _row(position: int, launch: PlannedLaunch) -> LaunchRow:
    server = launch.server
    return LaunchRow(
        position=position,
        launch_id=launch.launch_id,
        label=launch.label,
        role=launch.role.value,
        arm=launch.arm,
        node=launch.node,
        trials=len(launch.trials),
        argv=redact_argv(server.argv),
        env=redact_env(server.env),
        unset=server.unset,
        path_first=server.path_first,
    )


def _few_windows(plan: Plan) -> Iterator[str]:
    """Yield a sentence per workload whose every row will be flagged few_windows."""
    trials = [trial for launch in plan.launches for trial in launch.trials]
    for name, most in {each.workload.name: each.workload.repeats.max for each in trials}.items():
        if most < FEW_WINDOWS:
            yield (
                f"workload {name}: at most {_counted(most, 'window')} are measured, and below "
                f"{FEW_WINDOWS} the intervals are weak or missing: set repeats.max to "
                f"{FEW_WINDOWS} or more"
            )


def _budget_notes(plan: Plan, estimate: Estimate, budget: Budget) -> list[str]:
    notes = []
    launches = len(with_confirmations(plan.launches))
    if budget.launches is not None and launches > budget.launches:
        notes.append(f"the budget ends the sweep after {budget.launches} launches")
    if budget.hours is not None and estimate.seconds > budget.hours * 3600:
        notes.append(f"the budget ends the sweep after {budget.hours:g} hours")
    return notes
