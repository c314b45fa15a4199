"""Whether the instrument inside the engine is to be trusted: its state, and how it compares.

An instrument can change what it measures, or count something else than it says: one that
synchronised with the device in every cycle made a server 2.3 times slower, and one that missed
three of four cycles reported an accept length of 1.14 where it was 2.3. Both show when its own
figures are laid beside those of the client, which needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sweep.analysis.cycles import Cycles, Recorded, Recording
from sweep.analysis.wording import counted, listed, number

MAX_DISAGREEMENT = 0.05
"""Largest difference between instrument and client, as a fraction, that is borne."""


class InstrumentState(StrEnum):
    """What became of the phase timing of a trial."""

    RECORDED = "recorded"
    NOT_LOADED = "not_loaded"
    """No decoding process said that it is armed."""
    INCOMPATIBLE = "incompatible"
    """Armed, and something of the engine was not found, failed, or wrote another format."""
    IDLE = "idle"
    """Armed, and no cycle was seen."""


@dataclass(frozen=True)
class Instrument:
    """A state with its reason in words; None for RECORDED."""

    state: InstrumentState
    reason: str | None = None


def instrument_state(recorded: Recorded, cycles: int) -> Instrument:
    """Judge what a launch recorded, `cycles` of it in the trial; needs only headers and counts."""
    if recorded.problems:
        return Instrument(InstrumentState.INCOMPATIBLE, listed(recorded.problems))
    if not recorded.recordings:
        return Instrument(InstrumentState.NOT_LOADED, "no decoding process reported")
    reasons = [reason for item in recorded.recordings for reason in _faults(item)]
    if reasons:
        return Instrument(InstrumentState.INCOMPATIBLE, listed(reasons))
    if not recorded.drafting:
        return Instrument(InstrumentState.IDLE, "armed, and no process of the engine drafts")
    first = recorded.drafting[0]
    if cycles == 0 and not first.dropped:
        return Instrument(InstrumentState.IDLE, f"armed in {_place(first)} and saw no cycle")
    return Instrument(InstrumentState.RECORDED)


def _faults(item: Recording) -> Iterator[str]:
    if item.armed.missing:
        yield f"no {listed(item.armed.missing)} found in {_place(item)}"
    for error in item.errors:
        yield f"the hook of {error.where} failed and was taken out: {error.message}"


def _place(item: Recording) -> str:
    armed = item.armed
    parts = (armed.worker, armed.engine, armed.engine_version)
    return " ".join(part for part in parts if part) or "the engine"


@dataclass(frozen=True)
class Client:
    """What the client knows of the same windows; None: not known."""

    cycles: int | None
    """Of all answers, as the engine counted them for each."""
    accept_length: float | None
    decode_tok_s: float | None
    """Of one stream."""


def missing_cycles(recorded: Recorded, cycles: Cycles, client: Client) -> tuple[str, ...]:
    """Say what is missing of a trial's cycles, each in words; empty: nothing is."""
    first = recorded.drafting[0]
    found = cycles.total("requests")
    lost = first.dropped + first.damaged
    known = client.cycles is not None and found is not None
    reasons = []
    if client.cycles is not None and found is not None:
        borne = 0.0 if lost else MAX_DISAGREEMENT
        if found < client.cycles * (1.0 - borne):
            reasons.append(f"{found:,.0f} of {counted(client.cycles, 'cycle')} were recorded")
    if first.dropped and (reasons or not known):
        reasons.append(f"{first.dropped:,} of the launch were dropped at the file's bound")
    if first.damaged and (reasons or not known):
        reasons.append(f"{counted(first.damaged, 'line')} cannot be read")
    if cycles.jumps:
        reasons.append(f"their numbers skip some {counted(cycles.jumps, 'time')}")
    ranks = len(recorded.recordings)
    if ranks < first.armed.ranks:
        reasons.append(f"{ranks} of {first.armed.ranks} ranks recorded")
    return tuple(reasons)


def hand_made(recorded: Recorded) -> tuple[str, ...]:
    """Say which of the engine's sources have a profiler of their own, each in words."""
    files = dict.fromkeys(path for item in recorded.recordings for path in item.armed.patched)
    return tuple(f"a profiler made by hand is in {path}" for path in files)


def disagreements(cycles: Cycles, rate: float | None, client: Client) -> tuple[str, ...]:
    """Say where instrument and client differ by more than MAX_DISAGREEMENT, each in words.

    `rate` is the instrument's own tokens per second of one stream.
    """
    found = cycles.total("requests")
    pairs: Sequence[tuple[str, float | None, float | None]] = (
        ("tok/s of a stream", rate, client.decode_tok_s),
        ("accept length", cycles.accept_length, client.accept_length),
        # Too few are missing cycles, and said to be that.
        ("cycles", found if (found or 0) > (client.cycles or 0) else None, client.cycles),
    )
    return tuple(
        f"{name}: {number(own)} by the instrument, {number(other)} by the client "
        f"({own / other - 1.0:+.0%})"
        for name, own, other in pairs
        if own is not None and other and abs(own / other - 1.0) > MAX_DISAGREEMENT
    )
