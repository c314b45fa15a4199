"""Rules of the simulated server, which are SGLang's: what it makes of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sweep.engines.given import given_arguments
from sweep.engines.simulator import arguments
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment
from sweep.model.plan import Configuration
from sweep.ports import Judged

ALGORITHMS = ("EAGLE", "EAGLE3")
MAX_DRAFT_TOKENS = 64
"""Of a tree whose size is left to sweep."""


def problems(experiment: Experiment) -> tuple[Problem, ...]:
    """Everything wrong with an experiment for this engine."""
    return (*_argument_problems(experiment), *_engine_problems(experiment))


def _argument_problems(experiment: Experiment) -> Iterator[Problem]:
    for where, path, written in dict.fromkeys(item[:3] for item in given_arguments(experiment)):
        name = arguments.full_name(written)
        if name in arguments.RESERVED:
            yield Problem(
                f"{where}: SGLang's --{name} cannot be set here",
                hint=arguments.RESERVED[name],
                path=path,
            )
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
    if engine.algorithm is not None and engine.algorithm not in ALGORITHMS:
        yield Problem(
            f"engine.algorithm {engine.algorithm!r} is not simulated",
            hint=f"one of {', '.join(ALGORITHMS)}",
            path=("engine", "algorithm"),
        )
    for position, workload in enumerate(experiment.workloads):
        if workload.api == "completions":
            yield Problem(
                "the simulator answers by its native API and by chat only",
                hint="api: native, or api: chat",
                path=("workloads", position, "api"),
            )


def judge(configuration: Configuration, experiment: Experiment) -> Judged:
    """Return what the server would run for a configuration, or why it cannot."""
    if configuration.algorithm is None and configuration.num_steps is None:
        return Judged(_baseline(configuration))
    resolved = replace(
        configuration,
        algorithm=configuration.algorithm or arguments.DEFAULT_ALGORITHM,
        topk=configuration.topk or 1,
    )
    reason = _impossible(resolved, experiment)
    if reason is not None:
        return Judged(resolved, reason=reason)
    assert resolved.num_steps is not None
    return _sized(resolved, resolved.num_steps, resolved.topk or 1)


def _baseline(configuration: Configuration) -> Configuration:
    target_args = {
        name: value
        for name, value in configuration.args.items()
        if not arguments.is_speculative(name)
    }
    return Configuration(algorithm=None, variant=configuration.variant, args=target_args)


def _impossible(configuration: Configuration, experiment: Experiment) -> str | None:
    variant = arguments.variant_of(configuration, experiment)
    steps, topk = configuration.num_steps, configuration.topk
    if configuration.algorithm == "EAGLE3" and not (
        variant.draft_model or experiment.engine.draft_model
    ):
        return "EAGLE3 needs a draft model: without one SGLang loads the target twice and crashes"
    if steps is None:
        return "the draft steps must be given (num_steps): SGLang's default differs by model"
    if steps < 1:
        return f"num_steps {steps}: a draft has at least 1 step (0 is the baseline)"
    if topk is None or topk < 1:
        return f"topk {topk}: there is at least 1 branch"
    return None


def largest_pool(steps: int, topk: int) -> int:
    """Return how many draft tokens a tree can hold, the root included.

    SGLang chooses them out of topk + (steps - 1)·topk² candidates (organize_draft_results); one
    more fails with "selected index k out of range" when the graphs are captured.
    """
    return 1 + topk + (steps - 1) * topk**2


def _sized(configuration: Configuration, steps: int, topk: int) -> Judged:
    asked = configuration.num_draft_tokens
    if topk == 1:
        note = None
        if asked not in (None, steps + 1):
            note = "topk 1: SGLang sets num_draft_tokens to num_steps + 1, whatever is asked"
        return Judged(replace(configuration, num_draft_tokens=steps + 1), note=note)
    pool = largest_pool(steps, topk)
    if asked is None:
        tokens = min(MAX_DRAFT_TOKENS, pool)
        note = f"num_draft_tokens auto: the largest tree that SGLang allows, at most {tokens}"
        if tokens < MAX_DRAFT_TOKENS:
            note = "num_draft_tokens auto: the largest tree that SGLang allows for steps and topk"
        return Judged(replace(configuration, num_draft_tokens=tokens), note=note)
    if not 2 <= asked <= pool:  # noqa: PLR2004 - the root and one draft token
        reason = (
            f"num_draft_tokens {asked}: a tree of {steps} steps and topk {topk} holds 2 to {pool} "
            "tokens, the root included: 1 + topk + (steps - 1)·topk² (SGLang's candidates)"
        )
        return Judged(configuration, reason=reason)
    return Judged(configuration)
