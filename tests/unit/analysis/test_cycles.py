"""Tests of recorded cycles: which belong to a window, and their means and rates by hand."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.cycles import recording

from sweep.analysis.cycles import Cycles, select, window_spans


def cycles(*rows: dict[str, float | None]) -> Cycles:
    """Cycles of one window from 0 to 100 s."""
    return select(recording(rows), [(0.0, 100.0)])


def test_a_cycle_belongs_to_the_window_in_which_it_began() -> None:
    """Warm-up before, a pause between and the throw-away request after belong to none."""
    rows = [{"n": n, "start_s": float(n)} for n in range(1, 11)]
    found = select(recording(rows), [(2.0, 4.5), (7.0, 9.0)])
    assert found.columns["n"].tolist() == [2, 3, 4, 7, 8]
    assert found.until_s.tolist() == [3.0, 4.0, 4.5, 8.0, 9.0]
    assert found.jumps == 0
    assert found.count == 5


def test_numbers_that_are_skipped_inside_a_window_are_seen() -> None:
    """Between windows they are skipped by right."""
    rows = [{"n": n, "start_s": float(n)} for n in (1, 2, 4, 5, 9)]
    assert select(recording(rows), [(0.0, 6.0), (8.0, 10.0)]).jumps == 1


def test_no_window_and_no_cycle_give_nothing() -> None:
    """Nothing is known, and nothing is 0."""
    for found in (select(recording([]), [(0.0, 1.0)]), select(recording([{"start_s": 0.5}]), [])):
        assert found.count == 0
        assert found.mean("verify_s") is None
        assert found.accept_length is None
        assert found.total("requests") is None
        assert found.by_accepted() is None
        assert found.decode_rate([(0.0, 1.0)]) is None


def test_means_are_over_cycles_with_an_interval_so_that_the_parts_add_up() -> None:
    """The last cycle of an answer, which has none, is in no mean."""
    found = cycles(
        {"start_s": 1, "draft_s": 1, "verify_s": 6, "extend_s": 1, "other_s": 2, "cycle_s": 10},
        {"start_s": 2, "draft_s": 3, "verify_s": 8, "extend_s": 1, "other_s": 0, "cycle_s": 12},
        {"start_s": 3, "draft_s": 99, "verify_s": 99, "extend_s": 99},
    )
    parts = [found.mean(f"{name}_s") for name in ("draft", "verify", "extend", "other")]
    assert parts == [2, 7, 1, 1]
    assert found.mean("cycle_s") == 11
    assert found.mean("host_cycle_s") is None


def test_without_any_interval_means_are_over_all_cycles() -> None:
    """Phases are known where whole cycles are not."""
    found = cycles({"start_s": 1, "verify_s": 4}, {"start_s": 2, "verify_s": 6})
    assert found.mean("verify_s") == 5
    assert found.mean("cycle_s") is None


def test_accept_length_counts_each_request_of_the_batch() -> None:
    """3 + 0 + 2 accepted in 2 + 1 + 2 cycles of requests: 1 + 5 ÷ 5; unknown results are out."""
    rows: list[dict[str, float | None]] = [
        {"start_s": 1, "requests": 2, "accepted": 3},
        {"start_s": 2, "requests": 1, "accepted": 0},
        {"start_s": 3, "requests": 2, "accepted": 2},
        {"start_s": 4, "requests": 2, "accepted": None},
    ]
    assert cycles(*rows).accept_length == pytest.approx(2.0)
    assert cycles(*rows).total("requests") == 7
    assert cycles(*rows).total("accepted") is None


def test_acceptance_of_a_single_request_is_counted_by_depth() -> None:
    """A batch's sum says nothing of one request."""
    found = cycles(
        {"start_s": 1, "requests": 1, "accepted": 0},
        {"start_s": 2, "requests": 1, "accepted": 3},
        {"start_s": 3, "requests": 2, "accepted": 5},
        {"start_s": 4, "requests": 1, "accepted": 0},
    )
    assert found.by_accepted() == (2, 0, 0, 1)


def test_decode_rate_of_one_stream_by_hand() -> None:
    """Two answers after each other; the last cycle of each lasts as long as its answer does.

    Cycles of 10 ms at 1.00, 1.01, 1.02 and (after a prefill) 1.10, 1.11 s; answers end at 1.03 and
    1.12 s: 5 cycles of 10 ms with 5 + 6 tokens.
    """
    rows: list[dict[str, float | None]] = [
        {"start_s": start_s, "requests": 1, "accepted": accepted, "cycle_s": cycle_s}
        for start_s, accepted, cycle_s in (
            (1.00, 2, 0.01), (1.01, 0, 0.01), (1.02, 1, None), (1.10, 3, 0.01), (1.11, 0, None),
        )
    ]  # fmt: skip
    found = select(recording(rows), [(0.9, 1.12)])
    assert found.decode_rate([(1.0, 1.03), (1.1, 1.12)]) == pytest.approx(11 / 0.05)


def test_a_prefill_between_cycles_counts_for_the_streams_that_wait_for_it() -> None:
    """Two streams, one of which ends at 1.02: the other one's time goes on through the prefill."""
    rows: list[dict[str, float | None]] = [
        {"start_s": 1.00, "requests": 2, "accepted": 2, "cycle_s": 0.01},
        {"start_s": 1.01, "requests": 2, "accepted": 2, "cycle_s": None},
        {"start_s": 1.05, "requests": 2, "accepted": 0, "cycle_s": 0.01},
    ]
    found = select(recording(rows), [(0.9, 1.06)])
    streams = [(1.0, 1.02), (1.0, 1.06), (1.05, 1.06)]
    # 2 × 10 ms, then 10 ms of one stream and 40 ms of the other, then 2 × 10 ms.
    assert found.decode_rate(streams) == pytest.approx(10 / (0.02 + 0.05 + 0.02))


def test_windows_are_those_that_ended_complete() -> None:
    """An incomplete one, another trial's, and one without a last output are none."""
    events: list[dict[str, Any]] = [
        {"event": "window", "trial": "a", "complete": True, "start_s": 1.0, "end_s": 2.0},
        {"event": "window", "trial": "a", "complete": False, "start_s": 3.0, "end_s": 4.0},
        {"event": "window", "trial": "b", "complete": True, "start_s": 5.0, "end_s": 6.0},
        {"event": "window", "trial": "a", "complete": True, "start_s": 7.0, "end_s": None},
        {"event": "phase", "trial": "a", "phase": "measure"},
    ]
    assert window_spans(events, "a") == ((1.0, 2.0),)


def test_the_error_of_a_mean_by_hand() -> None:
    """4, 6 and 8 s spread by 2 s: 2 ÷ √3; the cycle without an interval is left out, and of one
    cycle nothing is known."""
    timed: list[dict[str, float | None]] = [
        {"start_s": n, "verify_s": 2 + 2 * n, "cycle_s": 10} for n in (1, 2, 3)
    ]
    found = cycles(*timed, {"start_s": 4, "verify_s": 99})
    assert found.standard_error("verify_s") == pytest.approx(2 / 3**0.5)
    assert found.standard_error("draft_s") is None
    assert cycles(timed[0]).standard_error("verify_s") is None
