"""launch.json for a planned launch: everything the agent needs, compiled to data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scipy.stats import t as student_t

from sweep.agent import wire
from sweep.model.experiment import Experiment, NodeSpec, Repeats
from sweep.model.plan import PlannedLaunch, PlannedTrial, Role
from sweep.ports import Engine
from sweep.spec.tracing import traced_trials

_SLACK_S = 300.0
"""A launch may take this much longer than its load and its trials."""
_TRACE_CALLS = 3
"""Start, stop and the writing of files, each with the same limit."""
_WINDOW_OVERHEAD_S = 90.0
"""Flush with its back-off, throw-away request and scrapes of one window, at worst."""


def launch_document(
    launch: PlannedLaunch,
    trials: Sequence[PlannedTrial],
    *,
    experiment: Experiment,
    engine: Engine,
    node: NodeSpec,
    sweep_id: str,
    attempt: int,
    nonce: str,
    owner: wire.Owner,
) -> wire.LaunchDoc:
    """Return launch.json for one attempt that runs `trials` of `launch`."""
    if launch.role is Role.UNPROFILED:
        experiment = replace(experiment, profile=None)
    timeouts = experiment.timeouts
    traced = traced_trials(launch, experiment)
    documents = [
        replace(trial_document(trial, engine), traced=trial.trial_id in traced) for trial in trials
    ]
    described = engine.document(experiment)
    return wire.LaunchDoc(
        sweep_id=sweep_id,
        launch_id=launch.launch_id,
        attempt=attempt,
        nonce=nonce,
        label=launch.label,
        argv=list(launch.server.argv),
        port_at=launch.server.port_at,
        env=dict(launch.server.env),
        path_first=list(launch.server.path_first),
        unset=sorted({*launch.server.unset, *experiment.axes.variables} - {*launch.server.env}),
        settings_at={name: list(item.path) for name, item in launch.server.settings.items()},
        gpus=None if node.gpus is None else list(node.gpus),
        owner=owner,
        engine=described,
        files=[wire.ServerFile(file.at, file.name, file.text) for file in launch.server.files],
        trials=documents,
        deadlines=wire.Deadlines(
            claim_s=timeouts.claim_s,
            load_s=timeouts.load_s,
            stall_s=timeouts.stall_s,
            request_s=timeouts.request_s,
            launch_s=timeouts.claim_s
            + timeouts.load_s
            + sum(_longest_s(document, timeouts.request_s) for document in documents)
            + sum(document.traced for document in documents)
            * _longest_trace_s(described.trace, timeouts.request_s)
            + _SLACK_S,
        ),
    )


def trial_document(trial: PlannedTrial, engine: Engine) -> wire.TrialDoc:
    """Return what the agent does for one trial.

    A window sends every prompt once; with fewer prompts than the concurrency, the list is
    repeated until every stream has one. The warm-up is one request per stream.
    """
    workload = trial.workload
    steps = trial.configuration.num_steps
    scan = engine.scan if trial.pinned else None

    def asking(request: wire.Request) -> wire.Request:
        return request if scan is None or steps is None else scan.asking(request, steps)

    requests = [asking(engine.request(workload, prompt)) for prompt in workload.prompts]
    rounds = -(-trial.concurrency // len(requests))
    requests *= rounds
    return wire.TrialDoc(
        trial_id=trial.trial_id,
        label=f"{trial.configuration.label}, {workload.name}, concurrency {trial.concurrency}",
        concurrency=trial.concurrency,
        requests=requests,
        warmup=requests[: trial.concurrency],
        throwaway=asking(engine.throwaway(workload)),
        repeats=repeats_document(workload.repeats),
        answer=engine.answer(workload),
        expects=[] if scan is None or steps is None else list(scan.in_force(steps)),
    )


def repeats_document(repeats: Repeats) -> wire.Repeats:
    """Return the stopping rule with Student's two-sided 95 % quantiles for 2 … max windows."""
    quantiles = [None, None] + [
        float(student_t.ppf(0.975, windows - 1)) for windows in range(2, repeats.max + 1)
    ]
    return wire.Repeats(repeats.min, repeats.max, repeats.relative_ci, quantiles)


def _longest_trace_s(trace: wire.Trace | None, request_s: float) -> float:
    """Return the longest that tracing one trial can take [s]."""
    return 0.0 if trace is None else request_s + _TRACE_CALLS * trace.limit_s


def _longest_s(trial: wire.TrialDoc, request_s: float) -> float:
    """Return the longest that a trial can take when every request meets its deadline [s]."""
    per_window = -(-len(trial.requests) // trial.concurrency) * request_s + _WINDOW_OVERHEAD_S
    return request_s + trial.repeats.max * per_window
