"""An experiment cut down to a rehearsal: every launch and trial, in as little time as shows it."""

from __future__ import annotations

from dataclasses import replace

from sweep.model.experiment import Experiment, Repeats, Workload

SUFFIX = "-rehearsal"
MAX_TOKENS = 150
"""Of an answer: some 70 cycles, enough for the simulated acceptance to be within 1 %."""
PROMPTS = 2
"""Of a workload, or one for each stream: intervals resample by prompt, and equal prompts at one
time would share a cache."""


def rehearsal(experiment: Experiment) -> Experiment:
    """Return what is swept to rehearse an experiment: the same nodes, axes, variants and
    deadlines against the simulated server, with short answers and two windows a trial."""
    return replace(
        experiment,
        name=experiment.name + SUFFIX,
        engine=replace(experiment.engine, kind="simulator", rehearses=experiment.engine.kind),
        workloads=tuple(_shortened(workload) for workload in experiment.workloads),
    )


def _shortened(workload: Workload) -> Workload:
    chat = workload.api == "chat" or any(prompt.messages for prompt in workload.prompts)
    return replace(
        workload,
        prompts=workload.prompts[: max(PROMPTS, *workload.concurrency)],
        max_tokens=min(MAX_TOKENS, workload.max_tokens),
        ignore_eos=True,
        repeats=Repeats(2, 2, workload.repeats.relative_ci),
        api="chat" if chat else "native",
    )
