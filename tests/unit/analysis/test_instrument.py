"""Tests of the instrument: what became of it, and whether it agrees with the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from fakes.cycles import armed, recording

from sweep.agent.cycles import HookError
from sweep.analysis.cycles import Cycles, Recorded, Recording, select
from sweep.analysis.instrument import (
    Client,
    InstrumentState,
    disagreements,
    instrument_state,
    missing_cycles,
)

SILENT = Client(None, None, None)


def of(*rows: Mapping[str, float | None], **changes: Any) -> tuple[Recorded, Cycles]:
    """What one rank recorded, and its cycles, one a second from 0 on."""
    numbered = [{"n": n, "start_s": float(n), **row} for n, row in enumerate(rows)]
    found = recording(numbered, **changes)
    return Recorded((found,)), select(found, [(0.0, 1000.0)])


@pytest.mark.parametrize(
    ("recorded", "cycles", "state", "reason"),
    [
        (Recorded(), 0, InstrumentState.NOT_LOADED, "no decoding process reported"),
        (
            Recorded((recording([]),)),
            0,
            InstrumentState.IDLE,
            "armed in EAGLEWorkerV2 sglang 0.5.23 and saw no cycle",
        ),
        (
            Recorded((recording([], armed=armed(missing=("extend",))),)),
            0,
            InstrumentState.INCOMPATIBLE,
            "no extend found in EAGLEWorkerV2 sglang 0.5.23",
        ),
        (
            Recorded((recording([], errors=(HookError("draft", "no attribute 'x'"),)),)),
            7,
            InstrumentState.INCOMPATIBLE,
            "the hook of draft failed and was taken out: no attribute 'x'",
        ),
        (
            Recorded(problems=("cycles.0.jsonl speaks version 2",)),
            0,
            InstrumentState.INCOMPATIBLE,
            "cycles.0.jsonl speaks version 2",
        ),
        (
            Recorded((recording([], armed=armed(worker=None, hooks=())),)),
            0,
            InstrumentState.IDLE,
            "armed, and no process of the engine drafts",
        ),
        (Recorded((recording([]),)), 7, InstrumentState.RECORDED, None),
        (Recorded((recording([], dropped=9),)), 0, InstrumentState.RECORDED, None),
    ],
)
def test_the_state_follows_from_headers_and_counts(
    recorded: Recorded, cycles: int, state: InstrumentState, reason: str | None
) -> None:
    """Not loaded, incompatible (with what), idle, or recorded; dropped cycles are not idleness."""
    found = instrument_state(recorded, cycles)
    assert found.state is state
    assert found.reason == reason


def test_missing_cycles_are_told_with_their_number() -> None:
    """Fewer than the answers count, by more than 5 %."""
    recorded, cycles = of(*[{"requests": 2}] * 47)
    assert missing_cycles(recorded, cycles, Client(94, None, None)) == ()
    assert missing_cycles(recorded, cycles, Client(98, None, None)) == ()
    told = missing_cycles(recorded, cycles, Client(100, None, None))
    assert told == ("94 of 100 cycles were recorded",)
    assert missing_cycles(recorded, cycles, SILENT) == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dropped": 40}, "40 of the launch were dropped at the file's bound"),
        ({"damaged": 1}, "1 line cannot be read"),
    ],
)
def test_lost_cycles_are_told_unless_all_of_the_trial_are_there(
    changes: dict[str, int], told: str
) -> None:
    """A bound that was reached later costs an early trial nothing; one cycle short is enough."""
    recorded, cycles = of(*[{"requests": 1}] * 100, **changes)
    assert missing_cycles(recorded, cycles, Client(100, None, None)) == ()
    short = missing_cycles(recorded, cycles, Client(101, None, None))
    assert short == ("100 of 101 cycles were recorded", told)
    assert missing_cycles(recorded, cycles, SILENT) == (told,)


def test_skipped_numbers_and_silent_ranks_are_told() -> None:
    """Both mean that a part is not known."""
    rows: list[dict[str, float | None]] = [{"n": 1}, {"n": 5}]
    recorded, cycles = of(*rows, armed=armed(ranks=8))
    assert missing_cycles(recorded, cycles, SILENT) == (
        "their numbers skip some 1 time",
        "1 of 8 ranks recorded",
    )


def test_the_reference_case_would_have_been_flagged() -> None:
    """A counter that missed three of four cycles printed 1.14 and 41.8 tok/s; the client had 71.

    Accept length was 2.12. So was one that synchronised, at 31.0 tok/s.
    """
    _, cycles = of(*[{"requests": 1, "accepted": accepted} for accepted in [1] * 14 + [0] * 86])
    told = disagreements(cycles, 41.8, Client(100, 2.12, 71.0))
    assert told == (
        "tok/s of a stream: 41.8 by the instrument, 71.0 by the client (-41%)",
        "accept length: 1.14 by the instrument, 2.12 by the client (-46%)",
    )
    assert disagreements(cycles, 31.0, Client(100, 1.14, 71.0)) == (
        "tok/s of a stream: 31.0 by the instrument, 71.0 by the client (-56%)",
    )


@pytest.mark.parametrize(
    ("rate", "flagged"), [(95.1, False), (104.9, False), (94.9, True), (105.1, True)]
)
def test_a_difference_of_five_percent_is_borne(rate: float, flagged: bool) -> None:
    """In both directions, and no further."""
    _, cycles = of({"requests": 1, "accepted": 1})
    assert bool(disagreements(cycles, rate, Client(None, 2.0, 100.0))) is flagged


def test_too_many_cycles_disagree_and_unknown_figures_do_not() -> None:
    """Cycles that no answer had were counted twice; too few are missing, and told as that."""
    _, cycles = of(*[{"requests": 1}] * 20)
    assert disagreements(cycles, None, Client(10, None, None)) == (
        "cycles: 20.0 by the instrument, 10.0 by the client (+100%)",
    )
    assert disagreements(cycles, None, Client(40, 2.0, 100.0)) == ()
    assert disagreements(cycles, 5.0, SILENT) == ()


def test_several_ranks_are_no_missing_ones() -> None:
    """Eight that report are all."""
    ranks: tuple[Recording, ...] = tuple(
        recording([{"n": 1, "start_s": 0.5}], armed=armed(rank=rank, ranks=8)) for rank in range(8)
    )
    cycles = select(ranks[0], [(0.0, 1.0)])
    assert missing_cycles(Recorded(ranks), cycles, SILENT) == ()
