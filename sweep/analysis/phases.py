"""The columns that the instrument inside the engine gives a row, with the doubts about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.agent.cycles import ENABLE_VARIABLE
from sweep.analysis import break_even
from sweep.analysis.acceptance import accept_length
from sweep.analysis.cycles import Cycles, Recorded, Span, select, window_spans
from sweep.analysis.instrument import (
    Client,
    InstrumentState,
    disagreements,
    hand_made,
    instrument_state,
    missing_cycles,
)
from sweep.analysis.measurement import Measurement, drafting, only_complete
from sweep.model.plan import PlannedLaunch
from sweep.model.record import AttemptRecord

PHASES = ("draft", "verify", "extend", "other")
"""In the order in which they run; their times add up to that of the cycle."""
DISAGREES = "instrument_disagrees"

_HOST = ("host_draft", "host_verify", "host_extend", "host_cycle")
_TIMED = (*PHASES, "cycle", *_HOST)
_MODELLED = ("draft", "verify")
"""Phases whose cost is fitted, with the error of their means as weight."""
_MS_PER_S = 1000.0


def is_asked(launch: PlannedLaunch) -> bool:
    """Whether the server was started with its cycles to be timed."""
    return launch.server.env.get(ENABLE_VARIABLE) == "1"


@dataclass(frozen=True)
class Phased:
    """Columns of a row, and flags."""

    row: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    by_accepted: tuple[int, ...] | None = None
    """Cycles that accepted exactly 0, 1, 2 … draft tokens; None: not known."""


def phased(
    recorded: Recorded, attempt: AttemptRecord, trial_id: str, measured: Measurement
) -> Phased:
    """Return what was recorded of a trial's complete windows; times are those of the lowest rank
    that drafts, means over its cycles."""
    spans = window_spans(attempt.events, trial_id)
    if not spans:
        return Phased()
    by_rank = [select(item, spans) for item in recorded.drafting]
    count = by_rank[0].count if by_rank else 0
    instrument = instrument_state(recorded, count)
    notes = [instrument.reason] if instrument.reason else []
    flags = []
    if instrument.state is not InstrumentState.RECORDED:
        flags.append(f"phases_{instrument.state.value}")
    if instrument.state is InstrumentState.IDLE or not by_rank:
        return Phased({"instrument_note": "; ".join(notes)}, tuple(flags))
    cycles = by_rank[0]
    client = _client(measured)
    rate = cycles.decode_rate(_streams(measured))
    for flag, found in (
        ("cycles_missing", missing_cycles(recorded, cycles, client)),
        (DISAGREES, disagreements(cycles, rate, client)),
        ("engine_patched", hand_made(recorded)),
    ):
        notes += found
        flags += [flag] if found else []
    row = {
        "timed_cycles": count,
        **{f"{name}_ms": _ms(cycles.mean(f"{name}_s")) for name in _TIMED},
        **{f"{name}_se_ms": _ms(cycles.standard_error(f"{name}_s")) for name in _MODELLED},
        "rank_spread_ms": _ms(_spread_s(by_rank)),
        "context_tokens": cycles.mean("context_tokens"),
        "phase_clock": recorded.drafting[0].armed.clock,
        "instrument_tok_s": rate,
        "instrument_accept_length": cycles.accept_length,
        "verified_tokens": cycles.mean("draft_tokens"),
        "instrument_note": "; ".join(notes) or None,
    }
    return Phased(row, tuple(flags), cycles.by_accepted())


def _client(measured: Measurement) -> Client:
    counts = drafting(only_complete(measured))
    length = None
    if counts.accepted_tokens is not None and counts.cycles is not None:
        length = accept_length(counts.accepted_tokens, counts.cycles)
    rate = measured.decode.rate if measured.decode is not None else None
    return Client(counts.cycles, length, rate)


def _streams(measured: Measurement) -> list[Span]:
    """From first to last output of every answer [s]."""
    return [
        (record.sent_s + record.first_s, record.sent_s + record.last_s)
        for record in (item.record for item in measured.answered)
        if record.first_s is not None and record.last_s is not None
    ]


def _spread_s(by_rank: Sequence[Cycles]) -> float | None:
    """Largest difference between the means of ranks in any phase [s]; None with one rank."""
    spreads = []
    for name in PHASES:
        means = [mean for cycles in by_rank if (mean := cycles.mean(f"{name}_s")) is not None]
        if len(means) > 1:
            spreads.append(max(means) - min(means))
    return max(spreads, default=None)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS_PER_S


def cycle_columns(row: Mapping[str, Any], flags: Sequence[str], token_s: float) -> dict[str, Any]:
    """Return what follows from a row's measured cycle and the time per token [s] of its baseline.

    Nothing when no cycle was measured, or when the instrument disagrees with the client: figures
    that rest on it would be no better.
    """
    cycle_ms, length = row.get("cycle_ms"), row.get("accept_length")
    if cycle_ms is None or DISAGREES in flags:
        return {}
    limit = break_even.break_even_accept_length(cycle_ms / _MS_PER_S, token_s)
    found: dict[str, Any] = {"break_even_accept_length": limit}
    if row.get("verify_ms") and row.get("verified_tokens"):
        found["batching_efficiency"] = break_even.batching_efficiency(
            row["verified_tokens"], token_s, row["verify_ms"] / _MS_PER_S
        )
    if length is None:
        return found
    found["speedup_by_cycle"] = break_even.speedup(length, limit)
    for name in PHASES:
        phase_ms = row.get(f"{name}_ms")
        if phase_ms is not None and phase_ms < cycle_ms:
            rest = break_even.break_even_accept_length((cycle_ms - phase_ms) / _MS_PER_S, token_s)
            found[f"{name}_headroom"] = break_even.speedup(length, rest)
    return found
