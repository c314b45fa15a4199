"""How long a plan takes, from what was measured or, before that, from an assumed load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sweep.model.plan import PlannedLaunch


@dataclass(frozen=True)
class Estimate:
    """An expected duration and what it stands on."""

    seconds: float
    is_lower_bound: bool
    """Whether measuring comes on top: nothing is known yet of how long a trial takes."""
    basis: str
    """A sentence for people."""


def estimate(
    launches: Sequence[PlannedLaunch],
    load_s: float,
    *,
    loads_s: Sequence[float] = (),
    trials_s: Mapping[tuple[str, int], Sequence[float]] | None = None,
) -> Estimate:
    """Return the expected duration of `launches`, such as a plan's or those that remain.

    `load_s` is assumed for a load while `loads_s`, the measured ones, is empty. `trials_s` are
    measured durations of trials by workload and concurrency; a pair that was never measured
    counts as the median of all that were.
    """
    load = median(loads_s) if loads_s else load_s
    loads = f"{len(launches)} loads of {load:.3g} s"
    loads += f" (median of {len(loads_s)})" if loads_s else " (assumed)"
    seconds = load * len(launches)
    measured = {pair: values for pair, values in (trials_s or {}).items() if values}
    if not measured:
        return Estimate(seconds, True, f"{loads}; measuring comes on top, no trial has ended yet")
    every = median([value for values in measured.values() for value in values])
    trials = [trial for launch in launches for trial in launch.trials]
    seconds += sum(
        median(measured[pair]) if pair in measured else every
        for pair in ((trial.workload.name, trial.concurrency) for trial in trials)
    )
    count = sum(map(len, measured.values()))
    return Estimate(seconds, False, f"{loads} and {len(trials)} trials by the median of {count}")
