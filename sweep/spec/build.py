"""The experiment of a checked file: every shorthand expanded, every mapping in sorted order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import TypeVar

from sweep.model.experiment import (
    Axes,
    Budget,
    Constraint,
    Drafting,
    EngineSpec,
    Experiment,
    NodeSpec,
    Objective,
    Profile,
    Prompt,
    Repeats,
    Scalar,
    Timeouts,
    Variant,
    Workload,
)
from sweep.spec.schema import (
    EngineSection,
    ExperimentFile,
    NodeSection,
    ObjectiveSection,
    ProfileSection,
    SweepSection,
    TimeoutsSection,
    VariantSection,
    WorkloadSection,
)

Resolve = Callable[[str | None], str | None]
_Value = TypeVar("_Value")

AXES = ("num_steps", "topk", "num_draft_tokens", "variant")
"""Names of axes that `exclude` may use, beside swept arguments."""


def build_experiment(
    file: ExperimentFile, prompts: Mapping[int, tuple[Prompt, ...]], base: FilePath
) -> Experiment:
    """Return the experiment; `prompts` holds those of each workload by its position."""

    def resolve(text: str | None) -> str | None:
        return text and resolve_path(text, base)

    return Experiment(
        name=file.name,
        engine=_engine(file.engine, resolve),
        workloads=tuple(
            _workload(section, prompts.get(position, ()))
            for position, section in enumerate(file.workloads)
        ),
        nodes=tuple(_node(section, resolve) for section in file.nodes or (file.node,)),
        baseline=file.baseline,
        axes=_axes(file.sweep, resolve),
        exclude=tuple(_exclude(entry) for entry in file.exclude),
        objective=_objective(file.objective),
        timeouts=_timeouts(file.timeouts),
        budget=Budget(launches=file.budget.launches, hours=file.budget.hours),
        profile=None if file.profile is None else _profile(file.profile),
        keep=file.keep,
    )


def resolve_path(text: str, base: FilePath) -> str:
    """Return a path of this machine for text with ./, ../ or ~ in front; else the text."""
    if text.startswith(("./", "../")):
        return os.path.normpath(base / text)
    if text.startswith("~"):
        return os.path.expanduser(text)  # noqa: PTH111 - leaves an unknown ~user as it is
    return text


def variants(section: SweepSection, resolve: Resolve) -> tuple[Variant, ...]:
    """Return all variants: default first, then nccl sets, then the others, in file order."""
    found = {"default": Variant("default")}
    for name, env in section.nccl.items():
        found[name] = Variant(name, env=ordered(env))
    for name, variant in section.variants.items():
        found[name] = _variant(name, variant, resolve)
    return tuple(found.values())


def exclude_key(key: str) -> str:
    """Return the axis or argument that a key of `exclude` names, in its one spelling."""
    axis = key.replace("-", "_")
    return axis if axis in AXES else key.replace("_", "-")


def ordered(values: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return a mapping sorted by key: the order in the file must not reach a command line."""
    return dict(sorted(values.items()))


def _variant(name: str, section: VariantSection, resolve: Resolve) -> Variant:
    return Variant(
        name,
        env=ordered({**section.env, **dict.fromkeys(section.unset)}),
        args=ordered(section.args),
        draft_model=resolve(section.draft_model),
        python=resolve(section.python),
        drafting=None if section.algorithm is None else _drafting(section.algorithm, section),
    )


def _drafting(algorithm: str, section: VariantSection) -> Drafting:
    return Drafting(
        algorithm,
        num_steps=section.num_steps,
        topk=section.topk,
        num_draft_tokens=section.num_draft_tokens or "auto",
    )


def _engine(section: EngineSection, resolve: Resolve) -> EngineSpec:
    command = section.command and tuple(resolve(part) or part for part in section.command)
    return EngineSpec(
        kind=section.kind,
        model=resolve(section.model) or section.model,
        command=command or None,
        python=resolve(section.python),
        draft_model=resolve(section.draft_model),
        algorithm=section.algorithm,
        args=ordered(section.args),
        env=ordered(section.env),
        setup=section.setup,
    )


def _axes(section: SweepSection, resolve: Resolve) -> Axes:
    return Axes(
        num_steps=section.num_steps,
        topk=section.topk,
        num_draft_tokens=section.num_draft_tokens or "auto",
        args=ordered(section.args),
        variants=variants(section, resolve),
        together=section.together,
        scan=section.scan,
    )


def _exclude(entry: Mapping[str, tuple[Scalar, ...]]) -> dict[str, tuple[Scalar, ...]]:
    return ordered({exclude_key(key): values for key, values in entry.items()})


def _node(section: NodeSection, resolve: Resolve) -> NodeSpec:
    return NodeSpec(
        host=section.host,
        gpus=section.gpus,
        on_busy=section.on_busy,
        workdir=resolve(section.workdir),
    )


def _workload(section: WorkloadSection, prompts: tuple[Prompt, ...]) -> Workload:
    repeats = section.repeats
    return Workload(
        name=section.name,
        prompts=prompts,
        max_tokens=section.max_tokens,
        ignore_eos=section.ignore_eos,
        temperature=section.temperature,
        concurrency=section.concurrency,
        repeats=Repeats(min=repeats.min, max=repeats.max, relative_ci=repeats.relative_ci),
        api=section.api,
    )


def _objective(section: ObjectiveSection) -> Objective:
    return Objective(
        metric=section.metric,
        workload=section.at.workload,
        concurrency=section.at.concurrency,
        constraints=tuple(
            Constraint(limit.metric, at_most=limit.at_most, at_least=limit.at_least)
            for limit in section.constraints
        ),
    )


def _profile(section: ProfileSection) -> Profile:
    return Profile(every_cycles=section.every_cycles, compare=section.compare, trace=section.trace)


def _timeouts(section: TimeoutsSection) -> Timeouts:
    return Timeouts(
        load_s=section.load,
        stall_s=section.stall,
        request_s=section.request,
        claim_s=section.claim,
    )
