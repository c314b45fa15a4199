"""Tests of the pure formulas against figures that were worked out by hand."""

from __future__ import annotations

import pytest

from sweep.analysis.acceptance import (
    accept_length,
    acceptance_rate,
    chain_accept_length,
    position_shares,
    sum_histograms,
)
from sweep.analysis.break_even import (
    batching_efficiency,
    break_even_accept_length,
    cycle_time_s,
    speedup,
)

BASELINE_TOKEN_S = 0.0111


@pytest.mark.parametrize(("cycle_s", "expected"), [(0.0299, 2.69), (0.03174, 2.86), (0.018, 1.62)])
def test_break_even(cycle_s: float, expected: float) -> None:
    """Cycles of 29.9, 31.74 and 18.0 ms against 11.1 ms per token."""
    assert break_even_accept_length(cycle_s, BASELINE_TOKEN_S) == pytest.approx(expected, abs=0.005)


def test_speedup_is_accept_length_over_break_even() -> None:
    """2.1 tokens per cycle of 28.45 ms lose: 0.82 of the baseline, in either form."""
    found = speedup(2.1, break_even_accept_length(0.02845, BASELINE_TOKEN_S))
    assert found == pytest.approx(0.82, abs=0.005)
    assert found == pytest.approx((2.1 / 6) * (6 * 11.1 / 28.45))


def test_batching_efficiency() -> None:
    """Six tokens in 28.45 ms instead of 66.6 ms are 2.3 times cheaper."""
    assert batching_efficiency(6, BASELINE_TOKEN_S, 0.02845) == pytest.approx(2.3, abs=0.05)


def test_cycle_time_from_the_client() -> None:
    """2.1 tokens per cycle at 70 tokens/s are 30 ms."""
    assert cycle_time_s(2.1, 70.0) == pytest.approx(0.030)


def test_accept_length_counts_the_bonus() -> None:
    """100 cycles that accepted 150 draft tokens made 2.5 tokens each."""
    assert accept_length(150, 100) == pytest.approx(2.5)
    assert accept_length(0, 100) == 1.0
    assert accept_length(0, 0) is None


def test_acceptance_rate_counts_no_bonus() -> None:
    """150 of 300 draft tokens; without draft tokens there is no rate."""
    assert acceptance_rate(150, 300) == pytest.approx(0.5)
    assert acceptance_rate(0, 0) is None


def test_shares_by_position_and_accept_length_are_one_definition() -> None:
    """Of 10 cycles 4, 3, 2 and 1 accepted 0, 1, 2 and 3; τ is 1 and all shares."""
    shares = position_shares((4, 3, 2, 1), 5)
    assert shares == pytest.approx((0.6, 0.3, 0.1, 0.0, 0.0))
    assert 1 + sum(shares) == pytest.approx(accept_length(3 + 4 + 3, 10) or 0)
    assert position_shares((4, 0, 1, 0, 0), 1) == pytest.approx((0.2, 0.2))
    assert position_shares((7,), 2) == (0.0, 0.0)
    assert position_shares((), 3) == position_shares((0, 0), 3) == ()


def test_histograms_of_answers_add_up() -> None:
    """Each is as long as its deepest acceptance."""
    assert sum_histograms([(1, 2), (3,), (0, 0, 5)]) == (4, 2, 5)
    assert sum_histograms([]) == ()


def test_a_chain_accepts_what_the_first_steps_of_a_longer_one_do() -> None:
    """1 + 0.6 + 0.3 for two steps; further than the shares reach nothing is known."""
    assert chain_accept_length((0.6, 0.3, 0.1), 2) == pytest.approx(1.9)
    assert chain_accept_length((0.6, 0.3, 0.1), 3) == pytest.approx(2.0)
    assert chain_accept_length((0.6, 0.3, 0.1), 4) is None
    assert chain_accept_length((), 1) is None
