"""How long a plan takes, from what was measured or, before that, from an assumed load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from sweep.model.plan import PlannedLaunch
from sweep.spec.scans import with_confirmations


@dataclass(frozen=True)
class Estimate:
    """An expected duration and what it stands on."""

    seconds: float
    is_lower_bound: bool
    """Whether measuring comes on top: nothing is known yet of how long a trial takes."""
    basis: str
    """A sentence for people."""


_ASSUMED_S = 900.0
"""What 8 GPUs took for a 4-bit model of 550 GB."""


@dataclass(frozen=True)
class ExpectedLoad:
    """How long a load may take before one was measured, and what that stands on."""

    seconds: float = _ASSUMED_S
    basis: str = "assumed"


def estimate(
    launches: Sequence[PlannedLaunch],
    expected: Mapping[str, ExpectedLoad],
    *,
    loads_s: Sequence[float] = (),
    trials_s: Mapping[tuple[str, int], Sequence[float]] | None = None,
) -> Estimate:
    """Return the expected duration of `launches`, such as a plan's or those that remain; nodes
    work at the same time, so it is that of the node that takes longest.

    `expected` is, by node, what a load takes while `loads_s`, the measured ones, is empty.
    `trials_s` are measured durations of trials by workload and concurrency; a pair that was never
    measured counts as the median of all that were.
    """
    by_node: dict[str, list[PlannedLaunch]] = {}
    for launch in with_confirmations(launches):
        by_node.setdefault(launch.node, []).append(launch)
    measured = None
    if loads_s:
        measured = ExpectedLoad(median(loads_s), f"median of {len(loads_s)}")
    found = [
        _of_node(own, measured or expected[node], trials_s or {}) for node, own in by_node.items()
    ]
    if not found:
        return Estimate(0.0, False, "nothing to launch")
    longest = max(found, key=lambda each: each.seconds)
    if len(found) == 1:
        return longest
    basis = f"{longest.basis}, on the node that takes longest of {len(found)}"
    return replace(longest, basis=basis)


def _of_node(
    launches: Sequence[PlannedLaunch],
    load: ExpectedLoad,
    trials_s: Mapping[tuple[str, int], Sequence[float]],
) -> Estimate:
    loads = f"{len(launches)} loads of {load.seconds:.3g} s ({load.basis})"
    seconds = load.seconds * len(launches)
    measured = {pair: values for pair, values in trials_s.items() if values}
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
