"""What the server itself counted and timed in a trial's windows, beside client and probe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from sweep.analysis.measurement import Measurement, drafting, only_complete
from sweep.analysis.wording import counted, number
from sweep.ports import ServerCounters

DISAGREES = "server_disagrees"
MAX_DIFFERENCE = 0.01
"""Between the server's counters and the counts of its answers, as a fraction."""
TIMED = ("draft", "verify", "extend")
_MS_PER_S = 1000.0

Scraped: TypeAlias = Sequence[tuple[ServerCounters, ServerCounters]]
"""Before and after each complete window."""
ScrapedOf: TypeAlias = Mapping[tuple[str, int], Mapping[str, Scraped]]
"""(launch id, attempt) → trial id → what was scraped; trials of which a scrape is missing are left
out."""


@dataclass(frozen=True)
class OfServer:
    """Columns of a row, and flags."""

    row: Mapping[str, Any]
    flags: tuple[str, ...]


def of_server(scraped: Scraped, measured: Measurement, timed_cycles: int | None) -> OfServer:
    """Compare the counters' growth over a trial's complete windows with the answers to its
    requests, and return the built-in timer's means over `timed_cycles` cycles of the batch."""
    row: dict[str, Any] = {
        f"timer_{phase}_ms": _mean_ms(scraped, phase, timed_cycles) for phase in TIMED
    }
    inside = only_complete(measured)
    pairs = (
        ("output token", _growth(scraped, "output_tokens"), inside.total("output_tokens")),
        ("cycle", _growth(scraped, "cycles"), drafting(inside).cycles),
    )
    found = [
        f"{counted(round(own), noun)} by its own counter, {answered:,} by its answers"
        for noun, own, answered in pairs
        if own is not None and answered and abs(own / answered - 1.0) > MAX_DIFFERENCE
    ]
    # Requests that failed are in the server's counters and in no answer.
    if measured.errors or not found:
        return OfServer(row, ())
    return OfServer(row | {"server_note": "; ".join(found)}, (DISAGREES,))


def timer_findings(frame: pd.DataFrame) -> tuple[str, ...]:
    """Lay the engine's own timer beside the probe, in a sentence; none where it has no timer."""
    rows = frame[frame["timer_verify_ms"].notna() & frame["verify_ms"].notna()].to_dict("records")
    if not rows:
        return ()
    apart = [float(row["timer_verify_ms"] / row["verify_ms"]) - 1.0 for row in rows]
    largest, row = max(zip(apart, rows, strict=True), key=lambda pair: abs(pair[0]))
    sentence = (
        f"Verification by the engine's own timer differs from the probe's by {largest:+.1%} at "
        f"most, in {counted(len(rows), 'row')} ({row['configuration']}, {row['workload']}, "
        f"concurrency {row['concurrency']}: {number(row['timer_verify_ms'])} ms a cycle against "
        f"{number(row['verify_ms'])}). It times the forward passes alone."
    )
    return (sentence,)


def _growth(scraped: Scraped, name: str) -> float | None:
    """Return how much a counter grew over all windows; None: some scrape does not have it."""
    total = 0.0
    for before, after in scraped:
        first, last = getattr(before, name), getattr(after, name)
        if last is None:
            return None
        total += last - (first or 0.0)  # a counter appears with its first event
    return total if scraped else None


def _mean_ms(scraped: Scraped, phase: str, cycles: int | None) -> float | None:
    if not cycles or not scraped or any(phase not in after.device_s for _, after in scraped):
        return None
    spent_s = sum(
        after.device_s[phase] - before.device_s.get(phase, 0.0) for before, after in scraped
    )
    return spent_s / cycles * _MS_PER_S
