"""Trials of a server that holds several step counts: which of them was in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sweep.analysis.cycles import Recorded, select, window_spans
from sweep.analysis.measurement import Measurement
from sweep.model.record import AttemptRecord, TrialRecord
from sweep.model.states import Failure, TrialState

_RATED = (TrialState.OK, TrialState.PARTIAL)


def steps_in_force(
    trial: TrialRecord, attempt: AttemptRecord | None, recorded: Recorded | None
) -> frozenset[int]:
    """Return the draft steps of the cycles in a trial's complete windows, over all ranks; empty:
    no cycle was recorded that tells."""
    if attempt is None or recorded is None:
        return frozenset()
    spans = window_spans(attempt.events, trial.trial.trial_id)
    found = [select(item, spans).columns["steps"] for item in recorded.drafting]
    steps = np.concatenate(found) if found else np.array([])
    return frozenset(int(value) for value in np.unique(steps[~np.isnan(steps)]))


def judged(trial: TrialRecord, steps: frozenset[int]) -> TrialRecord:
    """Return a trial, failed when cycles ran with other steps than its own."""
    asked = trial.trial.configuration.num_steps
    if not trial.trial.pinned or trial.state not in _RATED or steps <= {asked}:
        return trial
    ran = ", ".join(map(str, sorted(steps)))
    failure = Failure("not_pinned", f"cycles ran with {ran} steps, {asked} were asked")
    return replace(trial, state=TrialState.FAILED, failure=failure)


def counted(measured: Measurement, trial: TrialRecord) -> Measurement:
    """Return a measurement with the draft tokens that were proposed: SGLang counts them by the
    steps that the server was started with. A chain proposes a token a step."""
    steps = trial.trial.configuration.num_steps
    if not trial.trial.pinned or steps is None:
        return measured
    answered = (
        replace(item, counts=replace(item.counts, drafted_tokens=item.counts.cycles * steps))
        if item.counts.cycles is not None
        else item
        for item in measured.answered
    )
    return replace(measured, answered=tuple(answered))


def steps_flags(trial: TrialRecord, steps: frozenset[int]) -> tuple[str, ...]:
    """Return the doubts about which steps were in force."""
    return ("steps_unproven",) if trial.trial.pinned and not steps else ()


def effective(trial: TrialRecord, steps: frozenset[int]) -> Mapping[str, Any]:
    """Return the columns of what was in effect, of a trial whose requests chose it: the server's
    own arguments are those that it was started with."""
    if not trial.trial.pinned:
        return {}
    (only,) = steps if len(steps) == 1 else (None,)
    return {
        "effective_num_steps": only,
        "effective_num_draft_tokens": None if only is None else only + 1,
    }
