"""What an experiment file gives an engine, and may give it wrongly: the same for every engine."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.model.errors import Problem
from sweep.model.experiment import Experiment, Scalar


def given_arguments(
    experiment: Experiment,
) -> Iterator[tuple[str, tuple[str, ...], str, Scalar]]:
    """Yield every value of every argument: where, its path in the file, its name as written, and
    the value."""
    for name, value in experiment.engine.args.items():
        yield "engine.args", ("engine", "args", name), name, value
    for variant in experiment.axes.variants:
        for name, value in variant.args.items():
            path = ("sweep", "variants", variant.name, "args", name)
            yield f"variant {variant.name!r}", path, name, value
    for name, values in experiment.axes.args.items():
        for value in values:
            yield "sweep.args", ("sweep", "args", name), name, value


def unsendable_messages(experiment: Experiment) -> Iterator[Problem]:
    """Yield workloads whose messages only chat takes, for engines that are sent plain text."""
    for position, workload in enumerate(experiment.workloads):
        if workload.api != "chat" and any(prompt.messages for prompt in workload.prompts):
            yield Problem(
                f"workload {workload.name!r}: messages cannot be sent by api: {workload.api}",
                hint="api: chat",
                path=("workloads", position, "api"),
            )
