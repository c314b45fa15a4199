"""Prompts as tokens: what an engine's own tokenizer and chat template made of them on the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sweep.model.experiment import Experiment, Workload


def rendered(
    experiment: Experiment, token_ids: Mapping[str, Sequence[Sequence[int]]]
) -> Experiment:
    """Return the experiment with the tokens of its prompts, given by workload in order; workloads
    without an entry stay as they are. Raises ValueError when the numbers do not fit."""
    return replace(
        experiment,
        workloads=tuple(
            _with_tokens(workload, token_ids[workload.name])
            if workload.name in token_ids
            else workload
            for workload in experiment.workloads
        ),
    )


def _with_tokens(workload: Workload, token_ids: Sequence[Sequence[int]]) -> Workload:
    pairs = zip(workload.prompts, token_ids, strict=True)
    return replace(
        workload,
        prompts=tuple(replace(prompt, token_ids=tuple(tokens)) for prompt, tokens in pairs),
    )
