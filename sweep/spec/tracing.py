"""Which trials the server's own profiler traces."""

from __future__ import annotations

from sweep.model.experiment import Experiment
from sweep.model.plan import PlannedLaunch, PlannedTrial, Role

_ROLES = (Role.MAIN, Role.SCAN, Role.BASELINE_FIRST)


def traced_trials(launch: PlannedLaunch, experiment: Experiment) -> frozenset[str]:
    """Return the ids of a launch's trials that are traced: of each configuration the one where the
    objective is looked at, else its first. A launch that repeats another is not traced again."""
    if experiment.profile is None or not experiment.profile.trace or launch.role not in _ROLES:
        return frozenset()
    chosen: dict[str, PlannedTrial] = {}
    for trial in launch.trials:
        first = chosen.setdefault(trial.configuration_id, trial)
        if _is_wanted(trial, experiment) and not _is_wanted(first, experiment):
            chosen[trial.configuration_id] = trial
    return frozenset(trial.trial_id for trial in chosen.values())


def _is_wanted(trial: PlannedTrial, experiment: Experiment) -> bool:
    objective = experiment.objective
    workload = objective.workload or experiment.workloads[0].name
    wanted = objective.concurrency is None or trial.concurrency == objective.concurrency
    return trial.workload.name == workload and wanted
