"""Flags of SGLang's server: what the file may set, what sweep sets, what speculation needs.

The simulated server takes the same flags, and everything here serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sweep.agent.wire import AGENT_VARIABLE
from sweep.engines.given import (
    draft_model_of,
    largest_concurrency,
    merged_arguments,
    models,
    variant_of,
)
from sweep.engines.sglang import profiling
from sweep.model.experiment import Experiment, Scalar, Variant
from sweep.model.plan import Configuration, ServerCommand, Setting
from sweep.ports import EngineFacts

DEFAULT_PYTHON = "python3"
MODULE = ("-m", "sglang.launch_server")

START_S = 18.0
"""From the command to the first answer with a model of 4 MB: 18 to 22 s of 0.5.23 on a CPU."""

ASKING = (
    f"import os, sys; sys.path.insert(0, os.environ['{AGENT_VARIABLE}']); "
    "from sweep.inside import sglang; sglang.main()"
)
"""The agent's archive holds the program that asks an installed SGLang."""

DEFAULT_MAX_RUNNING = 48
"""SGLang's own limit of running requests under speculation; without it the limit is another, and
the baseline would be another server (speculative_hook.py of 0.5.23; every version since 0.4.6)."""

_OTHER_NAMES = {
    "model": "model-path",
    "tp": "tp-size",
    "tensor-parallel-size": "tp-size",
    "pp": "pp-size",
    "pipeline-parallel-size": "pp-size",
    "dp": "dp-size",
    "data-parallel-size": "dp-size",
    "ep": "ep-size",
    "expert-parallel-size": "ep-size",
    "speculative-draft-model": "speculative-draft-model-path",
}

RESERVED = {
    "model-path": "use engine.model",
    "host": "sweep serves on 127.0.0.1",
    "port": "sweep chooses the port of every launch",
    "enable-metrics": "sweep always sets it",
    "enable-cache-report": "sweep always sets it",
    "config": "write its arguments into engine.args: what a file of the node says is not compared",
    "api-key": "sweep's requests carry no key, and the server listens on 127.0.0.1 only",
    "admin-api-key": "sweep's requests carry no key, and the server listens on 127.0.0.1 only",
    "speculative-algorithm": "use engine.algorithm",
    "speculative-draft-model-path": "use engine.draft_model",
    "speculative-num-steps": "use sweep.num_steps",
    "speculative-eagle-topk": "use sweep.topk",
    "speculative-num-draft-tokens": "use sweep.num_draft_tokens",
    "speculative-adaptive": "use sweep.scan: sweep measures each step count",
    "speculative-adaptive-config": "use sweep.scan: sweep measures each step count",
}
"""Flags that the file must not set, and what to do instead."""

GRAPH_LIMITS = ("cuda-graph-max-bs", "cuda-graph-max-bs-decode")
"""The largest batch that CUDA graphs are captured for, up to 0.5.13 and since."""

_REPORTED = {"NEXTN": "EAGLE"}
"""Algorithm → the name under which the server runs it, where that is another."""

INVENTED_ACCEPTANCE = ("SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN")
"""Variables that replace what the drafter achieves by a given length, since 0.5.3 and before."""


def full_name(name: str) -> str:
    """Return the one long name of a flag written as in the file."""
    dashed = name.replace("_", "-")
    return _OTHER_NAMES.get(dashed, dashed)


def is_speculative(name: str) -> bool:
    """Whether a flag matters to speculation only; a baseline goes without it."""
    return full_name(name).startswith("speculative-")


def merged(configuration: Configuration, experiment: Experiment) -> dict[str, Scalar]:
    """Return a configuration's arguments by long name, in sorted order."""
    least = max(DEFAULT_MAX_RUNNING, largest_concurrency(experiment))
    return merged_arguments(
        configuration,
        experiment,
        full_name=full_name,
        is_speculative=is_speculative,
        defaults={"max-running-requests": least},
    )


def environment(configuration: Configuration, experiment: Experiment) -> dict[str, str | None]:
    """Return the environment: the engine's, the variant's over it, and for timing; None: unset."""
    given = {**experiment.engine.env, **variant_of(configuration, experiment).env}
    return profiling.environment(experiment, given, merged(configuration, experiment))


def _flags(values: Mapping[str, Scalar]) -> Iterator[str]:
    for name, value in values.items():
        if value is False:
            continue
        yield f"--{name}"
        if value is not True:
            yield str(value)


def _speculation(configuration: Configuration, experiment: Experiment) -> Iterator[str]:
    if configuration.algorithm is None:
        return
    values = {
        "speculative-algorithm": configuration.algorithm,
        "speculative-draft-model-path": draft_model_of(configuration, experiment),
        "speculative-num-steps": configuration.num_steps,
        "speculative-eagle-topk": configuration.topk,
        "speculative-num-draft-tokens": configuration.num_draft_tokens,
    }
    for name, value in values.items():
        if value is not None:
            yield from (f"--{name}", str(value))


def command(experiment: Experiment, variant: Variant | None = None) -> tuple[str, ...]:
    """Return the start of the argv: the file's engine.command, or Python with SGLang's module."""
    if experiment.engine.command is not None:
        return experiment.engine.command
    return (python_of(experiment, variant), *MODULE)


def python_of(experiment: Experiment, variant: Variant | None = None) -> str:
    """Return the Python that SGLang is installed in."""
    own = None if variant is None else variant.python
    return own or experiment.engine.python or DEFAULT_PYTHON


def server(configuration: Configuration, experiment: Experiment) -> ServerCommand:
    """Return the command of a judged configuration; only speculation differs within an arm."""
    start = command(experiment, variant_of(configuration, experiment))
    return server_from((*start, "--host", "127.0.0.1"), configuration, experiment)


def server_from(
    start: tuple[str, ...], configuration: Configuration, experiment: Experiment
) -> ServerCommand:
    """Return the command that begins with `start` and goes on with the port and every flag."""
    head = (*start, "--port", "0")
    env = dict.fromkeys(INVENTED_ACCEPTANCE) | environment(configuration, experiment)
    return ServerCommand(
        argv=(
            *head,
            "--model-path",
            experiment.engine.model,
            "--enable-metrics",
            "--enable-cache-report",
            *_flags(merged(configuration, experiment)),
            *_speculation(configuration, experiment),
        ),
        port_at=len(head) - 1,
        env={name: value for name, value in env.items() if value is not None},
        unset=tuple(name for name, value in env.items() if value is None),
        settings=_settings(configuration, experiment),
    )


def _settings(configuration: Configuration, experiment: Experiment) -> dict[str, Setting]:
    """Return what the server must report: how it speculates, and every argument whose value is
    not left to it. Its answer holds all arguments under the names of their fields."""
    algorithm = configuration.algorithm
    speculation: dict[str, tuple[str, Scalar | None]] = {
        "algorithm": ("speculative_algorithm", _REPORTED.get(algorithm or "", algorithm)),
    }
    asked = {
        "num_steps": ("speculative_num_steps", configuration.num_steps),
        "topk": ("speculative_eagle_topk", configuration.topk),
        "num_draft_tokens": ("speculative_num_draft_tokens", configuration.num_draft_tokens),
    }
    speculation |= {name: item for name, item in asked.items() if item[1] is not None}
    arguments = {
        name: (name.replace("-", "_"), value)
        for name, value in merged(configuration, experiment).items()
        if value != "auto"
    }
    return {
        name: Setting((key,), value) for name, (key, value) in (speculation | arguments).items()
    }


def facts_of(
    configuration: Configuration, experiment: Experiment, facts: EngineFacts | None
) -> EngineFacts | None:
    """Return what is known of the SGLang of a configuration: a variant may bring another one,
    and the node was asked for the engine's own."""
    own = variant_of(configuration, experiment).python
    return facts if own in (None, python_of(experiment)) else None


def identity_paths(experiment: Experiment) -> tuple[str, ...]:
    """Return what must be unchanged for a result to be reused: model directories, command files.

    A model that is no path is a name of the Hugging Face hub, whose files the node itself finds.
    """
    paths = [name for name in models(experiment) if is_path(name)]
    commands = [part for part in experiment.engine.command or () if is_path(part)]
    return tuple(dict.fromkeys([*paths, *commands]))


def pythons(experiment: Experiment) -> tuple[str, ...]:
    """Return every Python that servers are started with; none when a command of the user's is."""
    if experiment.engine.command is not None:
        return ()
    variants = experiment.axes.variants
    return tuple(dict.fromkeys(python_of(experiment, variant) for variant in variants))


def tokenizer(experiment: Experiment) -> dict[str, Any]:
    """Return how the server loads its tokenizer, by the engine's arguments."""
    args = {full_name(name): value for name, value in experiment.engine.args.items()}
    return {
        "path": args.get("tokenizer-path", experiment.engine.model),
        "mode": args.get("tokenizer-mode", "auto"),
        "trust_remote_code": args.get("trust-remote-code") is True,
        "revision": args.get("revision"),
    }


def is_path(name: str) -> bool:
    """Whether a model's name is a path on the node, and not a name of the hub."""
    return name.startswith("/")
