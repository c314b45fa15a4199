"""Which configuration of a scan is to be confirmed, and what its confirmation says."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sweep.analysis.ranking import objective_place, rankable
from sweep.analysis.wording import bounds, known, number, ratio
from sweep.model.experiment import Experiment
from sweep.model.plan import Role
from sweep.model.states import TrialState


def fastest_of(frame: pd.DataFrame, experiment: Experiment, scan: str) -> str | None:
    """Return the configuration of a scan, by its launch id, that the objective puts first; None:
    nothing of it ended ok and meets the constraints."""
    workload, concurrency = objective_place(experiment)
    at_place = (frame["workload"] == workload) & (frame["concurrency"] == concurrency)
    metric = experiment.objective.metric
    own = frame[at_place & (frame["launch_id"] == scan)]
    rows = rankable(own, metric, experiment.objective.constraints)
    if rows.empty:
        return None
    return str(rows.sort_values(metric, ascending=False)["configuration_id"].iloc[0])


_SAME = ("node", "arm", "configuration_id", "workload", "concurrency")


def confirmed(frame: pd.DataFrame, trial_id: str, metric: str) -> str:
    """Return what is to be said of a trial by the launches that confirm it: a sentence with a space
    in front, empty for one that was not measured in a scan."""
    (row,) = frame[frame["trial_id"] == trial_id].to_dict("records")
    if row["role"] != Role.SCAN.value:
        return ""
    alone = frame[frame["role"] == Role.CONFIRM.value].to_dict("records")
    found = [each for each in alone if all(each[name] == row[name] for name in _SAME)]
    good = [each for each in found if each["state"] == TrialState.OK.value and known(each[metric])]
    if good:
        return f" {_launched_alone(good[-1], metric)}"
    why = f" ({_why(found[-1])})" if found else ""
    return f" That is of a scan, and no launch of its own has confirmed it{why}."


def _why(row: Any) -> str:
    return str(row["failure_class"] if known(row["failure_class"]) else row["state"])


def _launched_alone(row: Any, metric: str) -> str:
    measured = f"{metric} {number(row[metric])}"
    if metric == "output_tok_s":
        measured = f"{number(row[metric])} tok/s"
        if known(row["speedup"]):
            interval = bounds(row["speedup_lo"], row["speedup_hi"])
            measured += f", {ratio(row['speedup'])}{interval} its baseline"
    if known(row["vs_scan"]):
        measured += f", {row['vs_scan'] - 1.0:+.1%} against the scan"
    return f"Launched alone it has {measured}."
