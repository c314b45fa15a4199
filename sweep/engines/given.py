"""What an experiment file gives an engine, and may give it wrongly: the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sweep.model.errors import Problem
from sweep.model.experiment import Experiment, Scalar, Variant
from sweep.model.plan import Configuration


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


def given_algorithms(experiment: Experiment) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every algorithm with its path in the file."""
    if experiment.engine.algorithm is not None:
        yield ("engine", "algorithm"), experiment.engine.algorithm
    for variant in experiment.axes.variants:
        if variant.drafting is not None:
            path = ("sweep", "variants", variant.name, "algorithm")
            yield path, variant.drafting.algorithm


def algorithm_problems(
    experiment: Experiment, taken: Iterable[str], refused: Mapping[str, str], whose: str
) -> Iterator[Problem]:
    """Yield algorithms that are none of `taken`; `refused` says why not, of those that exist."""
    hint = f"one of {', '.join(taken)}"
    for path, algorithm in given_algorithms(experiment):
        if algorithm in refused:
            message = f"algorithm {algorithm!r} is refused: {refused[algorithm]}"
            yield Problem(message, hint=hint, path=path)
        elif algorithm not in taken:
            yield Problem(f"algorithm {algorithm!r} is none of {whose}", hint=hint, path=path)


def unsendable_messages(experiment: Experiment) -> Iterator[Problem]:
    """Yield workloads whose messages only chat takes, for engines that are sent plain text."""
    for position, workload in enumerate(experiment.workloads):
        if workload.api != "chat" and any(prompt.messages for prompt in workload.prompts):
            yield Problem(
                f"workload {workload.name!r}: messages cannot be sent by api: {workload.api}",
                hint="api: chat",
                path=("workloads", position, "api"),
            )


def variant_of(configuration: Configuration, experiment: Experiment) -> Variant:
    """Return the variant that a configuration names."""
    return experiment.variant(configuration.variant)


def draft_model_of(configuration: Configuration, experiment: Experiment) -> str | None:
    """Return the draft model that a configuration is given: its variant's or the engine's, which
    was not made for another algorithm."""
    variant, engine = variant_of(configuration, experiment), experiment.engine
    another = variant.drafting is not None and variant.drafting.algorithm != engine.algorithm
    return variant.draft_model or (None if another else engine.draft_model)


def models(experiment: Experiment) -> tuple[str, ...]:
    """Return the target, then every drafter."""
    return tuple(dict.fromkeys([experiment.engine.model, *experiment.drafters]))


def largest_concurrency(experiment: Experiment) -> int:
    """Return the most requests that any workload has in flight."""
    return max(max(workload.concurrency) for workload in experiment.workloads)


def merged_arguments(
    configuration: Configuration,
    experiment: Experiment,
    *,
    full_name: Callable[[str], str],
    is_speculative: Callable[[str], bool],
    defaults: Mapping[str, Scalar],
) -> dict[str, Scalar]:
    """Return the arguments by long name: `defaults`, the engine's over them, the variant's, the
    swept last; a baseline goes without what matters to speculation only.

    Sorted, because a launch is identified by its argv and the order in the file must not count.
    """
    layers: tuple[Mapping[str, Scalar], ...] = (
        defaults,
        experiment.engine.args,
        variant_of(configuration, experiment).args,
        configuration.args,
    )
    values = {full_name(name): value for layer in layers for name, value in layer.items()}
    if configuration.is_baseline:
        values = {name: value for name, value in values.items() if not is_speculative(name)}
    return dict(sorted(values.items()))
