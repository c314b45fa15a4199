"""Which rows of a table may be ranked by an objective, and where."""

from __future__ import annotations

import pandas as pd

from sweep.model.experiment import Constraint, Experiment
from sweep.model.states import TrialState


def objective_place(experiment: Experiment) -> tuple[str, int]:
    """Return the workload and the concurrency at which the objective is looked at."""
    objective, first = experiment.objective, experiment.workloads[0]
    workload = objective.workload or first.name
    concurrencies = {item.name: item.concurrency for item in experiment.workloads}
    concurrency = objective.concurrency or concurrencies.get(workload, first.concurrency)[0]
    return workload, concurrency


def ended_ok(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of trials that ended ok."""
    return rows[rows["state"] == TrialState.OK.value]


def rankable(rows: pd.DataFrame, metric: str, constraints: tuple[Constraint, ...]) -> pd.DataFrame:
    """Return the rows that ended ok, have a value of the metric and keep every constraint."""
    found = ended_ok(rows)
    for name in [metric, *(constraint.metric for constraint in constraints)]:
        found = found[found[name].notna()] if name in found else found.iloc[:0]
    for constraint in constraints:
        if constraint.at_most is not None:
            found = found[found[constraint.metric] <= constraint.at_most]
        if constraint.at_least is not None:
            found = found[found[constraint.metric] >= constraint.at_least]
    return found
