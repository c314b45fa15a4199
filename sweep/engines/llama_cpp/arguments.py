"""Flags of llama-server: what the file may set, what sweep sets, what speculation needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweep.engines.given import (
    draft_model_of,
    largest_concurrency,
    merged_arguments,
    models,
    variant_of,
)
from sweep.model.experiment import Experiment, Scalar
from sweep.model.plan import Configuration, ServerCommand

DEFAULT_COMMAND = ("llama-server",)
DEFAULT_ALGORITHM = "draft-simple"

STEPS_FLAGS = {
    "draft-simple": "spec-draft-n-max",
    "draft-eagle3": "spec-draft-n-max",
    "draft-mtp": "spec-draft-n-max",
    "ngram-mod": "spec-ngram-mod-n-max",
    "ngram-simple": "spec-ngram-simple-size-m",
    "ngram-map-k": "spec-ngram-map-k-size-m",
    "ngram-map-k4v": "spec-ngram-map-k4v-size-m",
}
"""Algorithm → the flag that holds the draft length (root excluded). Each n-gram flag was checked
against the server's acceptance counters by position: none above the length was ever drafted."""

NEEDS_DRAFT_MODEL = frozenset({"draft-simple", "draft-eagle3"})
TAKES_DRAFT_MODEL = NEEDS_DRAFT_MODEL | {"draft-mtp"}

REFUSED_ALGORITHMS = {
    "ngram-cache": "its draft length cannot be set: the server drafts up to 8 tokens whatever "
    "--spec-draft-n-max says",
    "draft-dflash": "it was never tried with sweep",
    "draft-dspark": "it was never tried with sweep",
    "none": "that is the baseline: use `baseline: true`",
}

_SHORT_NAMES = {
    "m": "model",
    "c": "ctx-size",
    "t": "threads",
    "tb": "threads-batch",
    "b": "batch-size",
    "ub": "ubatch-size",
    "np": "parallel",
    "ngl": "gpu-layers",
    "n-gpu-layers": "gpu-layers",
    "md": "spec-draft-model",
    "model-draft": "spec-draft-model",
    "kvu": "kv-unified",
    "a": "alias",
}

RESERVED = {
    "model": "use engine.model",
    "host": "sweep serves on 127.0.0.1",
    "port": "sweep chooses the port of every launch",
    "metrics": "sweep always sets it",
    "slots": "sweep always sets it",
    "no-slots": "sweep reads the slots",
    "api-key": "sweep's requests carry no key, and the server listens on 127.0.0.1 only",
    "api-key-file": "sweep's requests carry no key, and the server listens on 127.0.0.1 only",
    "spec-type": "use engine.algorithm",
    "spec-draft-model": "use engine.draft_model",
    "spec-synth-len": "its acceptance is invented, not the drafter's",
    "spec-synth-rates": "its acceptance is invented, not the drafter's",
    "draft": "llama-server removed it: use sweep.num_steps",
    "draft-n": "llama-server removed it: use sweep.num_steps",
    "draft-max": "llama-server removed it: use sweep.num_steps",
    "draft-min": "llama-server removed it: use spec-draft-n-min",
    **dict.fromkeys(STEPS_FLAGS.values(), "use sweep.num_steps"),
}
"""Flags that the file must not set, and what to do instead."""


def full_name(name: str) -> str:
    """Return the one long name of a flag written as in the file."""
    dashed = name.replace("_", "-")
    return _SHORT_NAMES.get(dashed, dashed)


def is_speculative(name: str) -> bool:
    """Whether a flag matters to speculation only; a baseline goes without it."""
    long = full_name(name)
    return long.startswith("spec-") or long.endswith("-draft")


def merged(configuration: Configuration, experiment: Experiment) -> dict[str, Scalar]:
    """Return a configuration's arguments by long name, in sorted order."""
    return merged_arguments(
        configuration,
        experiment,
        full_name=full_name,
        is_speculative=is_speculative,
        defaults={"parallel": largest_concurrency(experiment)},
    )


def _flags(values: Mapping[str, Scalar]) -> Iterator[str]:
    for name, value in values.items():
        if value is False:
            continue
        yield f"-{name}" if len(name) == 1 else f"--{name}"
        if value is not True:
            yield str(value)


def _speculation(configuration: Configuration, experiment: Experiment) -> dict[str, Scalar]:
    algorithm = configuration.algorithm
    if algorithm is None:
        return {}
    values: dict[str, Scalar] = {"spec-type": algorithm}
    draft_model = draft_model_of(configuration, experiment)
    if draft_model is not None and algorithm in TAKES_DRAFT_MODEL:
        values["spec-draft-model"] = draft_model
    if configuration.num_steps is not None:
        values[STEPS_FLAGS[algorithm]] = configuration.num_steps
    return values


def server(configuration: Configuration, experiment: Experiment) -> ServerCommand:
    """Return the command of a judged configuration; only speculation differs within an arm."""
    head_command = command(experiment)
    head = (*head_command, "--model", experiment.engine.model, "--host", "127.0.0.1", "--port", "0")
    ours: dict[str, Scalar] = {"metrics": True, "slots": True}
    flags = merged(configuration, experiment) | ours | _speculation(configuration, experiment)
    env = {**experiment.engine.env, **variant_of(configuration, experiment).env}
    return ServerCommand(
        argv=(*head, *_flags(flags)),
        port_at=len(head) - 1,
        env={name: value for name, value in env.items() if value is not None},
        unset=tuple(name for name, value in env.items() if value is None),
    )


def command(experiment: Experiment) -> tuple[str, ...]:
    """Return the start of the argv: the file's engine.command, or llama-server."""
    return experiment.engine.command or DEFAULT_COMMAND


def identity_paths(experiment: Experiment) -> tuple[str, ...]:
    """Return what must be unchanged for a result to be reused: models and command files."""
    parts = [part for part in experiment.engine.command or () if "/" in part]
    return tuple(dict.fromkeys([*models(experiment), *parts]))
