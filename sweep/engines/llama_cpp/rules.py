"""Rules of llama-server: problems of an experiment, and what it makes of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sweep.engines.given import (
    algorithm_problems,
    draft_model_of,
    given_algorithms,
    given_arguments,
    largest_concurrency,
    unsendable_messages,
)
from sweep.engines.llama_cpp import arguments
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment, Scalar
from sweep.model.plan import Configuration
from sweep.ports import Judged

NGRAM_NOTE = (
    "n-gram drafting learns from what the server has generated: repeats of a prompt get faster"
)

SHORTEST_DRAFTED_ANSWER = 3
"""The first token comes from prefill and a last single one is decoded without a draft."""


def problems(experiment: Experiment) -> tuple[Problem, ...]:
    """Everything wrong with an experiment for this engine."""
    found = [
        *_argument_problems(experiment),
        *_engine_problems(experiment),
        *_length_problems(experiment),
        *unsendable_messages(experiment),
        *_profile_problems(experiment),
    ]
    return (*found, *_slot_problems(experiment)) if not found else tuple(found)


def _argument_problems(experiment: Experiment) -> Iterator[Problem]:
    seen: dict[tuple[str, str], str] = {}
    places = dict.fromkeys(place[:3] for place in given_arguments(experiment))
    for where, path, name in places:
        long = arguments.full_name(name)
        if long in arguments.RESERVED:
            yield Problem(
                f"{where}: llama.cpp's --{long} cannot be set here",
                hint=arguments.RESERVED[long],
                path=path,
            )
        if (where, long) in seen:
            yield Problem(
                f"{where}: {seen[where, long]} and {name} are the same flag --{long}", path=path
            )
        seen[where, long] = name


def _engine_problems(experiment: Experiment) -> Iterator[Problem]:
    engine = experiment.engine
    if engine.python is not None or any(v.python for v in experiment.axes.variants):
        yield Problem(
            "python has no meaning for llama.cpp, whose server is a program",
            hint="use engine.command",
            path=("engine", "python"),
        )
    yield from algorithm_problems(
        experiment, arguments.STEPS_FLAGS, arguments.REFUSED_ALGORITHMS, "llama.cpp's"
    )
    nothing = engine.algorithm is None and not _any_draft_model(experiment)
    if experiment.axes.num_steps and nothing:
        yield Problem(
            "sweep.num_steps is given, but nothing to draft with",
            hint="give engine.draft_model, or engine.algorithm: one of "
            + ", ".join(arguments.STEPS_FLAGS),
            path=("sweep", "num_steps"),
        )


def _profile_problems(experiment: Experiment) -> Iterator[Problem]:
    if experiment.profile is not None:
        yield Problem(
            "profile has no meaning for llama.cpp: there is no probe for its server",
            hint="remove it",
            path=("profile",),
        )


def _any_draft_model(experiment: Experiment) -> bool:
    return any((experiment.engine.draft_model, *(v.draft_model for v in experiment.axes.variants)))


def _length_problems(experiment: Experiment) -> Iterator[Problem]:
    if not (experiment.axes.num_steps or any(given_algorithms(experiment))):
        return
    for position, workload in enumerate(experiment.workloads):
        if workload.max_tokens < SHORTEST_DRAFTED_ANSWER:
            yield Problem(
                f"max_tokens {workload.max_tokens} of workload {workload.name!r}: llama-server "
                f"drafts nothing in answers of fewer than {SHORTEST_DRAFTED_ANSWER} tokens",
                hint="give more tokens: what is measured is how fast they are generated",
                path=("workloads", position, "max_tokens"),
            )


def _values(experiment: Experiment, name: str) -> list[tuple[str, tuple[str, ...], Scalar]]:
    """Return every value that an argument is given anywhere, with where and its path."""
    return [
        (where, path, value)
        for where, path, written, value in given_arguments(experiment)
        if arguments.full_name(written) == name
    ]


def _slot_problems(experiment: Experiment) -> Iterator[Problem]:
    """Fewer slots than requests would measure a queue; a slot must hold a whole answer."""
    needed = largest_concurrency(experiment)
    slots = needed
    for where, path, value in _values(experiment, "parallel"):
        if not isinstance(value, int) or isinstance(value, bool) or value < needed:
            yield Problem(
                f"{where}: parallel {value} is less than the largest concurrency, {needed}: "
                "requests would wait for a slot and the queue would be measured",
                hint="leave parallel out: sweep sets it alike for every launch",
                path=path,
            )
        else:
            slots = max(slots, value)
    if any(value is True for _, _, value in _values(experiment, "kv-unified")):
        slots = 1
    longest = max(experiment.workloads, key=lambda workload: workload.max_tokens)
    for where, path, value in _values(experiment, "ctx-size"):
        # 0 means the model's own context length, which only the server knows.
        if isinstance(value, int) and 0 < value // slots <= longest.max_tokens:
            yield Problem(
                f"{where}: ctx-size {value} is shared by {slots} slots, {value // slots} tokens "
                f"each: too few for max_tokens {longest.max_tokens} of workload "
                f"{longest.name!r} and its prompts",
                hint="ctx-size is the sum over all slots: multiply it by the largest concurrency",
                path=path,
            )


def judge(configuration: Configuration, experiment: Experiment) -> Judged:
    """Return what the server would run for a configuration, or why it cannot."""
    if configuration.algorithm is None and configuration.num_steps is None:
        return Judged(_baseline(configuration))
    algorithm = configuration.algorithm or arguments.DEFAULT_ALGORITHM
    resolved = replace(configuration, algorithm=algorithm)
    reason = _impossible(resolved, experiment)
    if reason is not None:
        return Judged(resolved, reason=reason)
    assert resolved.num_steps is not None
    resolved = replace(resolved, topk=1, num_draft_tokens=resolved.num_steps + 1)
    return Judged(resolved, note=NGRAM_NOTE if algorithm.startswith("ngram-") else None)


def _baseline(configuration: Configuration) -> Configuration:
    target_args = {
        name: value
        for name, value in configuration.args.items()
        if not arguments.is_speculative(name)
    }
    return Configuration(algorithm=None, variant=configuration.variant, args=target_args)


def _impossible(configuration: Configuration, experiment: Experiment) -> str | None:
    algorithm, steps = configuration.algorithm, configuration.num_steps
    if algorithm not in arguments.STEPS_FLAGS:
        return f"llama.cpp has no algorithm {algorithm!r} that sweep can set the length of"
    if algorithm in arguments.NEEDS_DRAFT_MODEL and not draft_model_of(configuration, experiment):
        return f"{algorithm} needs a draft model: engine.draft_model is not given"
    if steps is None:
        return (
            "the draft length must be given (num_steps): llama-server's default differs between "
            "its versions"
        )
    if steps < 1:
        return f"num_steps {steps}: a draft has at least 1 token (0 is the baseline)"
    return _no_chain(configuration, steps, arguments.STEPS_FLAGS[algorithm])


def _no_chain(configuration: Configuration, steps: int, flag: str) -> str | None:
    if configuration.topk not in (None, 1):
        return (
            f"topk {configuration.topk}: llama-server drafts a chain and has no flag for a tree "
            "(--spec-type and its options), so topk must be 1"
        )
    if configuration.num_draft_tokens not in (None, steps + 1):
        return (
            f"num_draft_tokens {configuration.num_draft_tokens}: a chain of {steps} steps "
            f"verifies {steps + 1} tokens, the root included; llama-server has one flag for both "
            f"(--{flag})"
        )
    return None
