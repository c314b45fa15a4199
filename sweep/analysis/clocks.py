"""The GPUs' clocks while trials were measured: which of them the hardware held back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from sweep.analysis.cycles import Span

MAX_CLOCK_DROP = 0.05
"""Clocks of equal work differ by less from launch to launch."""

IDLE = 0x1
"""The one reason of nvidia-smi's clocks_throttle_reasons that holds nothing back."""


@dataclass(frozen=True)
class ClockSample:
    """One look at one GPU; `t_s` is of the node's monotonic clock, as that of the windows."""

    t_s: float
    uuid: str
    sm_clock_mhz: float
    throttle_reasons: int
    """Bits as nvidia-smi has them; 0: none was reported."""


ClocksOf: TypeAlias = Mapping[tuple[str, int], Sequence[ClockSample]]
"""(launch id, attempt) → its samples."""


@dataclass(frozen=True)
class Clock:
    """A GPU's clock in the windows of one trial."""

    mean_mhz: float
    is_held_back: bool
    """Whether any sample gave a reason."""


def clocks_within(spans: Sequence[Span], samples: Sequence[ClockSample]) -> dict[str, Clock]:
    """Return the clock of each GPU in a trial's windows; without samples there, it has none.

    `samples` are in the order of their times.
    """
    inside: dict[str, list[ClockSample]] = defaultdict(list)
    for begin_s, end_s in spans:
        first = bisect_left(samples, begin_s, key=_time_s)
        for sample in samples[first : bisect_right(samples, end_s, key=_time_s)]:
            inside[sample.uuid].append(sample)
    return {
        uuid: Clock(
            fmean(sample.sm_clock_mhz for sample in found),
            any(sample.throttle_reasons & ~IDLE for sample in found),
        )
        for uuid, found in inside.items()
    }


def _time_s(sample: ClockSample) -> float:
    return sample.t_s


def throttled(
    groups: Mapping[str, Hashable], clocks: Mapping[str, Mapping[str, Clock]]
) -> set[str]:
    """Return the trials in whose windows a GPU was slower than it can be.

    `groups`: trial → what it is compared within, which is equal work on one node; `clocks`: trial →
    GPU → clock. Slower is more than MAX_CLOCK_DROP below the GPU's best trial of the group, with a
    reason reported: a GPU that merely has less to do gives none.
    """
    best: dict[tuple[Hashable, str], float] = {}
    for trial, own in clocks.items():
        for uuid, clock in own.items():
            key = groups[trial], uuid
            best[key] = max(best.get(key, 0.0), clock.mean_mhz)
    return {
        trial
        for trial, own in clocks.items()
        for uuid, clock in own.items()
        if clock.is_held_back and clock.mean_mhz < (1 - MAX_CLOCK_DROP) * best[groups[trial], uuid]
    }
