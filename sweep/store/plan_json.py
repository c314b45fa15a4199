"""Experiment and plan as JSON text in the database; each workload is written once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from sweep.model.canonical import identity
from sweep.model.experiment import Experiment, Workload
from sweep.model.plan import PlannedLaunch, SkippedConfiguration

_EXPERIMENT: TypeAdapter[Experiment] = TypeAdapter(Experiment)
_WORKLOAD: TypeAdapter[Workload] = TypeAdapter(Workload)
_LAUNCH: TypeAdapter[PlannedLaunch] = TypeAdapter(PlannedLaunch)
_SKIPPED: TypeAdapter[SkippedConfiguration] = TypeAdapter(SkippedConfiguration)


def encode_experiment(experiment: Experiment) -> str:
    """Return the experiment as JSON text."""
    return _EXPERIMENT.dump_json(experiment).decode()


def decode_experiment(text: str) -> Experiment:
    """Read what encode_experiment wrote."""
    return _EXPERIMENT.validate_json(text)


def encode_skipped(skipped: SkippedConfiguration) -> str:
    """Return a skipped configuration as JSON text."""
    return _SKIPPED.dump_json(skipped).decode()


def decode_skipped(text: str) -> SkippedConfiguration:
    """Read what encode_skipped wrote."""
    return _SKIPPED.validate_json(text)


def encode_workload(workload: Workload) -> tuple[str, str]:
    """Return a workload's identity and its JSON text."""
    return identity(workload), _WORKLOAD.dump_json(workload).decode()


def decode_workload(text: str) -> Workload:
    """Read what encode_workload wrote."""
    return _WORKLOAD.validate_json(text)


def encode_launch(launch: PlannedLaunch) -> str:
    """Return a launch as JSON text with its workloads named by identity, not written out."""
    bare = replace(
        launch,
        trials=tuple(
            replace(trial, workload=replace(trial.workload, prompts=())) for trial in launch.trials
        ),
    )
    document: dict[str, Any] = _LAUNCH.dump_python(bare, mode="json")
    for entry, trial in zip(document["trials"], launch.trials, strict=True):
        entry["workload"] = identity(trial.workload)
    return json.dumps(document)


def decode_launch(text: str, workloads: dict[str, Workload]) -> PlannedLaunch:
    """Read what encode_launch wrote, given the workloads by identity."""
    document: dict[str, Any] = json.loads(text)
    for entry in document["trials"]:
        entry["workload"] = workloads[entry["workload"]]
    return _LAUNCH.validate_python(document)
