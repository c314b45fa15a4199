"""Flags of the simulated server: SGLang's, and three of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweep.agent.wire import AGENT_VARIABLE
from sweep.engines.given import given_arguments
from sweep.model.experiment import Experiment, Scalar, Variant
from sweep.model.plan import Configuration, ServerCommand

DEFAULT_PYTHON = "python3"
DEFAULT_ALGORITHM = "EAGLE3"
PACKAGED_CALIBRATION = "reference"

BOOTSTRAP = (
    f"import os, sys; sys.path.insert(0, os.environ['{AGENT_VARIABLE}']); "
    "from sweep.simulator.main import main; main()"
)
"""The agent's archive holds the simulator, and its path is known on the node only: with the path
in the environment, the command line is the same for every sweep."""

RESERVED = {
    "model-path": "use engine.model",
    "model": "use engine.model",
    "host": "sweep serves on 127.0.0.1",
    "port": "sweep chooses the port of every launch",
    "enable-metrics": "sweep always sets it",
    "speculative-algorithm": "use engine.algorithm",
    "speculative-draft-model-path": "use engine.draft_model",
    "speculative-num-steps": "use sweep.num_steps",
    "speculative-eagle-topk": "use sweep.topk",
    "speculative-num-draft-tokens": "use sweep.num_draft_tokens",
}
"""Flags that the file must not set, and what to do instead."""


def full_name(name: str) -> str:
    """Return a flag's name in its one spelling."""
    return name.replace("_", "-")


def is_speculative(name: str) -> bool:
    """Whether a flag matters to speculation only; a baseline goes without it."""
    return full_name(name).startswith("speculative-")


def variant_of(configuration: Configuration, experiment: Experiment) -> Variant:
    """Return the variant that a configuration names."""
    return next(v for v in experiment.axes.variants if v.name == configuration.variant)


def _merged(
    configuration: Configuration, variant: Variant, experiment: Experiment
) -> Iterator[str]:
    """Yield the flags: the engine's, the variant's over them, the swept last, in sorted order."""
    given: tuple[Mapping[str, Scalar], ...] = (
        experiment.engine.args,
        variant.args,
        configuration.args,
    )
    values = {full_name(name): value for layer in given for name, value in layer.items()}
    for name, value in sorted(values.items()):
        if value is False or (configuration.is_baseline and is_speculative(name)):
            continue
        yield f"--{name}"
        if value is not True:
            yield str(value)


def _speculation(
    configuration: Configuration, variant: Variant, experiment: Experiment
) -> Iterator[str]:
    if configuration.algorithm is None:
        return
    values = {
        "speculative-algorithm": configuration.algorithm,
        "speculative-draft-model-path": variant.draft_model or experiment.engine.draft_model,
        "speculative-num-steps": configuration.num_steps,
        "speculative-eagle-topk": configuration.topk,
        "speculative-num-draft-tokens": configuration.num_draft_tokens,
    }
    for name, value in values.items():
        if value is not None:
            yield from (f"--{name}", str(value))


def command(python: str | None) -> tuple[str, ...]:
    """Return the start of the argv."""
    return (python or DEFAULT_PYTHON, "-I", "-c", BOOTSTRAP)


def server(configuration: Configuration, experiment: Experiment) -> ServerCommand:
    """Return the command of a judged configuration; only speculation differs within an arm."""
    variant = variant_of(configuration, experiment)
    head = (*command(variant.python or experiment.engine.python), "--port", "0")
    env = {**experiment.engine.env, **variant.env}
    return ServerCommand(
        argv=(
            *head,
            "--model-path",
            experiment.engine.model,
            "--enable-metrics",
            *_merged(configuration, variant, experiment),
            *_speculation(configuration, variant, experiment),
        ),
        port_at=len(head) - 1,
        env={name: value for name, value in env.items() if value is not None},
        unset=tuple(name for name, value in env.items() if value is None),
    )


def calibrations(experiment: Experiment) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every calibration that the file names, with its path in the file."""
    for _, path, name, value in given_arguments(experiment):
        if full_name(name) == "calibration":
            yield path, str(value)


def identity_paths(experiment: Experiment) -> tuple[str, ...]:
    """Return the calibration files: results of another one are other results."""
    named = dict.fromkeys(value for _, value in calibrations(experiment))
    return tuple(value for value in named if value != PACKAGED_CALIBRATION)
