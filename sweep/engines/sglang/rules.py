"""Rules of SGLang's server: problems of an experiment, and what it makes of a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.engines.given import given_arguments
from sweep.engines.sglang import arguments, speculation
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment
from sweep.model.plan import Configuration
from sweep.ports import EngineFacts, Judged


def problems(experiment: Experiment) -> tuple[Problem, ...]:
    """Everything wrong with an experiment for this engine, whatever its version."""
    return (
        *argument_problems(experiment),
        *_engine_problems(experiment),
        *api_problems(experiment),
    )


def argument_problems(experiment: Experiment) -> Iterator[Problem]:
    """Yield arguments that sweep sets itself, that are given twice, or too low."""
    yield from _reserved_arguments(experiment)
    yield from _repeated_arguments(experiment)
    yield from _limit_problems(experiment)


def _reserved_arguments(experiment: Experiment) -> Iterator[Problem]:
    for where, path, written in dict.fromkeys(item[:3] for item in given_arguments(experiment)):
        name = arguments.full_name(written)
        if name in arguments.RESERVED:
            yield Problem(
                f"{where}: SGLang's --{name} cannot be set here",
                hint=arguments.RESERVED[name],
                path=path,
            )


def _repeated_arguments(experiment: Experiment) -> Iterator[Problem]:
    seen: dict[tuple[str, str], str] = {}
    for where, path, name in dict.fromkeys(item[:3] for item in given_arguments(experiment)):
        long = arguments.full_name(name)
        if (where, long) in seen:
            yield Problem(
                f"{where}: {seen[where, long]} and {name} are the same flag --{long}", path=path
            )
        seen[where, long] = name


def _engine_problems(experiment: Experiment) -> Iterator[Problem]:
    algorithm = experiment.engine.algorithm
    path = ("engine", "algorithm")
    if algorithm in speculation.REFUSED_ALGORITHMS:
        yield Problem(
            f"engine.algorithm {algorithm!r} is refused: it was never tried with sweep",
            hint=f"one of {', '.join(speculation.ALGORITHMS)}",
            path=path,
        )
    elif algorithm is not None and algorithm not in speculation.ALGORITHMS:
        yield Problem(
            f"engine.algorithm {algorithm!r} is none of SGLang's",
            hint=f"one of {', '.join(speculation.ALGORITHMS)}",
            path=path,
        )
    elif algorithm is None and experiment.axes.num_steps:
        yield Problem(
            "sweep.num_steps is given, but not how to draft",
            hint=f"give engine.algorithm: one of {', '.join(speculation.ALGORITHMS)}",
            path=("sweep", "num_steps"),
        )


def api_problems(experiment: Experiment) -> Iterator[Problem]:
    """Yield workloads whose API does not return SGLang's counters."""
    for position, workload in enumerate(experiment.workloads):
        if workload.api == "completions":
            yield Problem(
                "SGLang is asked by its native API or by chat only",
                hint="api: native, or api: chat",
                path=("workloads", position, "api"),
            )


def _limit_problems(experiment: Experiment) -> Iterator[Problem]:
    """A server that runs fewer requests than are sent would have its queue measured."""
    needed = arguments.largest_concurrency(experiment)
    for where, path, written, value in given_arguments(experiment):
        if arguments.full_name(written) != "max-running-requests":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < needed:
            yield Problem(
                f"{where}: max-running-requests {value} is less than the largest concurrency, "
                f"{needed}: requests would wait, and the queue would be measured",
                hint="leave it out: sweep sets it alike for every launch",
                path=path,
            )


def judge(
    configuration: Configuration,
    experiment: Experiment,
    known: EngineFacts | None,  # noqa: ARG001
) -> Judged:
    """Return what the server would run for a configuration, or why it cannot."""
    if configuration.algorithm is None:
        return Judged(speculation.baseline(configuration))
    reason = speculation.missing_draft(configuration, experiment)
    if reason is not None:
        return Judged(configuration, reason=reason)
    if configuration.algorithm == speculation.NGRAM:
        return speculation.ngram(configuration)
    return speculation.sized(configuration)
