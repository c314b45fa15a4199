"""Rules of SGLang's server: problems of an experiment, and what it makes of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sweep.engines.given import (
    algorithm_problems,
    draft_model_of,
    given_arguments,
    largest_concurrency,
)
from sweep.engines.sglang import arguments, compatibility, known, speculation
from sweep.engines.sglang.case import Case
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment, Scalar
from sweep.model.plan import Configuration
from sweep.ports import EngineFacts, Judged


def problems(experiment: Experiment) -> tuple[Problem, ...]:
    """Everything wrong with an experiment for this engine, whatever its version."""
    return (
        *argument_problems(experiment),
        *_engine_problems(experiment),
        *api_problems(experiment),
        *scan_problems(experiment),
        *simulated_acceptance(experiment),
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
    yield from algorithm_problems(
        experiment, speculation.ALGORITHMS, speculation.REFUSED_ALGORITHMS, "SGLang's"
    )
    if experiment.engine.algorithm is None and experiment.axes.num_steps:
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


def scan_problems(experiment: Experiment) -> Iterator[Problem]:
    """Yield a scan without the probe, which gives the choice of steps to the requests, and writes
    down with which steps each cycle ran."""
    if experiment.axes.scan and experiment.profile is None:
        yield Problem(
            "sweep.scan needs the probe, which changes the steps and shows that it did",
            hint="give `profile: {}`, or leave sweep.scan out",
            path=("sweep", "scan"),
        )


def _limit_problems(experiment: Experiment) -> Iterator[Problem]:
    """A server that runs fewer requests than are sent would have its queue measured; one that
    captured graphs for fewer runs the others without, which is slower."""
    needed = largest_concurrency(experiment)
    for where, path, written, value in given_arguments(experiment):
        name = arguments.full_name(written)
        if name == "max-running-requests" and not _at_least(value, needed):
            yield Problem(
                f"{where}: {name} {value} is less than the largest concurrency, {needed}: "
                "requests would wait, and the queue would be measured",
                hint="leave it out: sweep sets it alike for every launch",
                path=path,
            )
        if name in arguments.GRAPH_LIMITS and not _at_least(value, needed):
            yield Problem(
                f"{where}: {name} {value} is less than the largest concurrency, {needed}: "
                "larger batches would run without CUDA graphs",
                hint=f"give {needed} or more",
                path=path,
            )


def _at_least(value: Scalar, needed: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= needed


def simulated_acceptance(experiment: Experiment) -> Iterator[Problem]:
    """Yield environments that make the server invent how many tokens are accepted."""
    places: list[tuple[tuple[str, ...], Mapping[str, str | None]]] = [
        (("engine", "env"), experiment.engine.env)
    ]
    places += [(("sweep", "variants", v.name, "env"), v.env) for v in experiment.axes.variants]
    for path, env in places:
        for name in arguments.INVENTED_ACCEPTANCE:
            if env.get(name) is not None:
                yield Problem(
                    f"{name} makes the server invent how many tokens are accepted",
                    hint="remove it: sweep makes sure that it is unset",
                    path=(*path, name),
                )


def judge(
    configuration: Configuration, experiment: Experiment, facts: EngineFacts | None
) -> Judged:
    """Return what the server would run for a configuration, or why it cannot."""
    if configuration.is_baseline:
        judged = Judged(speculation.baseline(configuration))
    elif configuration.algorithm == speculation.NGRAM:
        judged = speculation.ngram(configuration)
    else:
        judged = speculation.sized(configuration)
    if judged.reason is not None:
        return judged
    case = Case(
        judged.configuration,
        arguments.merged(judged.configuration, experiment),
        arguments.environment(configuration, experiment),
        draft_model_of(configuration, experiment),
        known.read(arguments.facts_of(configuration, experiment, facts), experiment.engine.model),
    )
    reason = compatibility.reason(case) or _uncounted(case, experiment)
    notes = [*filter(None, [judged.note]), *compatibility.notes(case)]
    return replace(judged, reason=reason, note="; ".join(notes) or None)


def _uncounted(case: Case, experiment: Experiment) -> str | None:
    """A chat that streams carries no counts in older versions, and nobody could tell whether the
    draft was used."""
    chats = any(workload.api == "chat" for workload in experiment.workloads)
    if case.configuration.is_baseline or not chats or not case.known.before(0, 5, 20):
        return None
    return (
        f"answers of api: chat carry no counts of speculation in {case.known.name} (0.5.20 and "
        "newer do): use api: native"
    )
