"""Flags of the simulated server: SGLang's, and three of its own."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.agent.wire import AGENT_VARIABLE
from sweep.engines.given import given_arguments, variant_of
from sweep.engines.sglang import arguments as sglang
from sweep.model.experiment import Experiment
from sweep.model.plan import Configuration, ServerCommand

DEFAULT_PYTHON = "python3"
DEFAULT_ALGORITHM = "EAGLE3"
PACKAGED_CALIBRATION = "reference"
PACKAGED_LOAD_S = 900.0
LOAD_SPEEDUP = "load-speedup"

BOOTSTRAP = (
    f"import os, sys; sys.path.insert(0, os.environ['{AGENT_VARIABLE}']); "
    "from sweep.simulator.main import main; main()"
)
"""The agent's archive holds the simulator, and its path is known on the node only: with the path
in the environment, the command line is the same for every sweep."""


def command(python: str | None) -> tuple[str, ...]:
    """Return the start of the argv."""
    return (python or DEFAULT_PYTHON, "-I", "-c", BOOTSTRAP)


def server(configuration: Configuration, experiment: Experiment) -> ServerCommand:
    """Return the command of a judged configuration; only speculation differs within an arm."""
    variant = variant_of(configuration, experiment)
    start = command(variant.python or experiment.engine.python)
    return sglang.server_from(start, configuration, experiment)


def calibrations(experiment: Experiment) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every calibration that the file names, with its path in the file."""
    for _, path, name, value in given_arguments(experiment):
        if sglang.full_name(name) == "calibration":
            yield path, str(value)


def load_s(experiment: Experiment) -> float | None:
    """Return how long the packaged calibration's load takes; None: another one is named, whose
    load its file on the node tells [s]."""
    if any(name != PACKAGED_CALIBRATION for _, name in calibrations(experiment)):
        return None
    speedup = experiment.engine.args.get(LOAD_SPEEDUP, 1)
    if not isinstance(speedup, int | float) or speedup <= 0:
        return None
    return PACKAGED_LOAD_S / speedup


def identity_paths(experiment: Experiment) -> tuple[str, ...]:
    """Return the calibration files: results of another one are other results."""
    named = dict.fromkeys(value for _, value in calibrations(experiment))
    return tuple(value for value in named if value != PACKAGED_CALIBRATION)
