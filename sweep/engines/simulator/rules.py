"""Rules of the simulated server, which are SGLang's: what it makes of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sweep.engines.given import algorithm_problems, unsendable_messages
from sweep.engines.sglang import rules as sglang
from sweep.engines.simulator import arguments
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment
from sweep.model.plan import Configuration
from sweep.ports import Judged

ALGORITHMS = ("EAGLE", "EAGLE3")


def problems(experiment: Experiment) -> tuple[Problem, ...]:
    """Everything wrong with an experiment for this engine."""
    return (
        *sglang.argument_problems(experiment),
        *_calibration_problems(experiment),
        *_engine_problems(experiment),
        *sglang.api_problems(experiment),
        *sglang.scan_problems(experiment),
        *unsendable_messages(experiment),
    )


def _calibration_problems(experiment: Experiment) -> Iterator[Problem]:
    for path, value in arguments.calibrations(experiment):
        if value != arguments.PACKAGED_CALIBRATION and not value.startswith("/"):
            yield Problem(
                f"calibration {value!r} is neither `{arguments.PACKAGED_CALIBRATION}` nor an "
                "absolute path",
                hint="give the path of the calibration file on the node",
                path=path,
            )


def _engine_problems(experiment: Experiment) -> Iterator[Problem]:
    engine = experiment.engine
    if engine.command is not None:
        yield Problem(
            "command has no meaning for the simulator, which is started by Python",
            hint="use engine.python, or leave it out",
            path=("engine", "command"),
        )
    yield from algorithm_problems(experiment, ALGORITHMS, {}, "the simulated server's")


def judge(configuration: Configuration, experiment: Experiment) -> Judged:
    """Return what the server would run for a configuration, or why it cannot."""
    if not (configuration.is_baseline and configuration.num_steps is None):
        algorithm = configuration.algorithm or arguments.DEFAULT_ALGORITHM
        configuration = replace(configuration, algorithm=algorithm)
    return sglang.judge(configuration, experiment, None)
