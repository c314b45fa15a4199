"""The engine's own record of its decode cycles: which of them a trial measured, and their sums.

Times of entry are those of the host's monotonic clock, which is also that of the events and the
requests of the same attempt, so that a cycle belongs to the window in which it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweep.agent.cycles import Armed, CycleFile, HookError

Column: TypeAlias = NDArray[np.float64]
Span: TypeAlias = tuple[float, float]
"""Begin and end [s] on the node's monotonic clock."""


@dataclass(frozen=True)
class Recording:
    """What one decoding process recorded; values that are not known are NaN."""

    armed: Armed
    columns: Mapping[str, Column]
    """By the names of agent.cycles.FIELDS, durations in seconds."""
    dropped: int = 0
    damaged: int = 0
    errors: tuple[HookError, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """What one attempt of a launch recorded, by rank; `problems` are files that cannot be read."""

    recordings: tuple[Recording, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def drafting(self) -> tuple[Recording, ...]:
        """Those of processes that draft: a stage of a pipeline may be armed and have nothing to."""
        return tuple(item for item in self.recordings if item.armed.hooks or item.armed.missing)


CyclesOf: TypeAlias = Mapping[tuple[str, int], Recorded]
"""(launch id, attempt) → what was recorded."""


def recording(file: CycleFile) -> Recording | None:
    """Return a decoded file for analysis; None when it ends before its handshake."""
    if file.armed is None:
        return None
    columns = {name: np.array(values, dtype=float) for name, values in file.columns.items()}
    return Recording(file.armed, columns, file.dropped, file.damaged, file.errors)


def window_spans(events: Iterable[Mapping[str, Any]], trial_id: str) -> tuple[Span, ...]:
    """Return first request sent and last output of the trial's complete windows [s]."""
    return tuple(
        (float(event["start_s"]), float(event["end_s"]))
        for event in events
        if event.get("event") == "window" and event.get("trial") == trial_id and event["complete"]
        and None not in (event.get("start_s"), event.get("end_s"))
    )  # fmt: skip


@dataclass(frozen=True)
class Cycles:
    """Cycles that began inside some windows."""

    columns: Mapping[str, Column]
    until_s: Column
    """Where the next cycle of the same window began, for the last one where the window ended."""
    jumps: int
    """How often the number of the cycle skips some inside a window."""

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.until_s.size)

    def mean(self, name: str) -> float | None:
        """Mean of a column over the cycles whose interval is known, so that the parts of a cycle
        add up to it; over all when the interval of none is. None: nothing is known."""
        known = self._timed(name)
        return float(known.mean()) if known.size else None

    def standard_error(self, name: str) -> float | None:
        """Standard error of `mean`, cycles taken as independent; None: fewer than two are known."""
        known = self._timed(name)
        return float(known.std(ddof=1)) / known.size**0.5 if known.size > 1 else None

    def _timed(self, name: str) -> Column:
        timed = ~np.isnan(self.columns["cycle_s"])
        values = self.columns[name][timed] if timed.any() else self.columns[name]
        return values[~np.isnan(values)]

    def total(self, name: str) -> float | None:
        """Sum of a column; None when it is not known of every cycle."""
        total = float(self.columns[name].sum())
        return None if self.count == 0 or np.isnan(total) else total

    @property
    def accept_length(self) -> float | None:
        """τ = 1 + accepted ÷ cycles of requests [tokens per cycle]; None: not known."""
        known = self._counted()
        requests = float(self.columns["requests"][known].sum())
        return 1.0 + float(self.columns["accepted"][known].sum()) / requests if requests else None

    def _counted(self) -> NDArray[np.bool_]:
        """Which cycles say what they yielded."""
        return ~np.isnan(self.columns["accepted"] + self.columns["requests"])

    def by_accepted(self) -> tuple[int, ...] | None:
        """Cycles that accepted exactly 0, 1, 2 … draft tokens, from those of a single request:
        only there the count is one request's. None: there are none."""
        alone = self.columns["accepted"][self.columns["requests"] == 1]
        known = alone[~np.isnan(alone)].astype(int)
        return tuple(int(count) for count in np.bincount(known)) if known.size else None

    def decode_rate(self, streams: Sequence[Span]) -> float | None:
        """Tokens per second of one stream, bonus tokens included; None: not known.

        Tokens of the cycles ÷ the time of their requests. Where the interval to the next cycle is
        not the engine's own (a prefill or a pause lay between), the time counts of those `streams`
        (first to last output of an answer) that went on meanwhile, by the host's clock.
        """
        known = self._counted()
        accepted, requests = self.columns["accepted"][known], self.columns["requests"][known]
        own_s = requests * self.columns["cycle_s"][known]
        cut = np.isnan(own_s)
        busy_s = float(own_s[~cut].sum())
        starts, ends = self.columns["start_s"][known][cut], self.until_s[known][cut]
        for first_s, last_s in streams:
            overlap = np.minimum(ends, last_s) - np.maximum(starts, first_s)
            busy_s += float(overlap.clip(min=0.0).sum())
        return float((accepted + requests).sum()) / busy_s if busy_s > 0 else None


def select(recorded: Recording, spans: Sequence[Span]) -> Cycles:
    """Return the cycles of a recording that began inside one of `spans`."""
    starts = recorded.columns["start_s"]
    parts = [np.flatnonzero((starts >= begin) & (starts < end)) for begin, end in spans]
    chosen = np.concatenate(parts) if parts else np.array([], dtype=int)
    until = [
        np.append(starts[part[1:]], end)[: part.size]
        for part, (_, end) in zip(parts, spans, strict=True)
    ]
    return Cycles(
        columns={name: column[chosen] for name, column in recorded.columns.items()},
        until_s=np.concatenate(until) if until else np.array([]),
        jumps=sum(int((np.diff(recorded.columns["n"][part]) > 1).sum()) for part in parts),
    )
