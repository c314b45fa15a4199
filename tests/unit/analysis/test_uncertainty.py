"""Tests of intervals: known values, pairing, coverage, and when there is none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sweep.analysis.uncertainty import (
    Grid,
    difference_interval,
    pool,
    rate_interval,
    ratio_interval,
)


def grid(time_s: list[list[float]] | NDArray[np.float64], tokens: float = 100.0) -> Grid:
    """Equal tokens in every cell, and the given times."""
    times = np.asarray(time_s, dtype=float)
    prompts = tuple(f"p{n}" for n in range(times.shape[1]))
    return Grid(prompts, np.full_like(times, tokens), times)


def test_two_windows_of_one_prompt_by_hand() -> None:
    """Two leave-one-out values are the two windows' own rates; t has one degree of freedom."""
    found = rate_interval(grid([[1.0], [1.1]]))
    assert found is not None
    variance = 0.5 * 2 * (np.log(1.1) / 2) ** 2
    reach = stats.t.ppf(0.975, 1) * variance**0.5
    assert found.lo == pytest.approx(200 / 2.1 * np.exp(-reach))
    assert found.hi == pytest.approx(200 / 2.1 * np.exp(reach))


def test_equal_cells_give_a_point() -> None:
    """Without any spread the interval is the estimate."""
    found = rate_interval(grid(np.ones((3, 4))))
    assert found is not None
    assert (found.lo, found.hi) == pytest.approx((100.0, 100.0))


def test_prompts_are_paired_in_ratios() -> None:
    """Hard and easy prompts that slow both sides alike leave the ratio certain."""
    times = np.array([[1.0, 5.0, 20.0], [1.0, 5.0, 20.0]])
    slow, fast = grid(times), grid(times / 2)
    alone = rate_interval(slow)
    paired = ratio_interval(fast, slow)
    assert alone is not None
    assert paired is not None
    assert alone.hi / alone.lo > 3
    assert (paired.lo, paired.hi) == pytest.approx((2.0, 2.0))


def test_pairing_takes_shared_prompts_in_any_order() -> None:
    """Columns are matched by prompt, not by place."""
    left = Grid(("a", "b"), np.full((2, 2), 100.0), np.array([[1.0, 4.0], [1.0, 4.0]]))
    right = Grid(("b", "a"), np.full((2, 2), 100.0), np.array([[8.0, 2.0], [8.0, 2.0]]))
    found = ratio_interval(left, right)
    assert found is not None
    assert (found.lo, found.hi) == pytest.approx((2.0, 2.0))


def test_a_difference_of_two_windows_each_by_hand() -> None:
    """Two sides' leave-one-out values add their variances; Welch's degrees of freedom."""
    above, below = grid([[1.0], [1.25]]), grid([[2.0], [2.5]])
    found = difference_interval(above, below)
    assert found is not None
    # Left out in turn: 80 and 100, 40 and 50; the jackknife's variance of two is half the square.
    variances = 0.5 * 2 * 10.0**2, 0.5 * 2 * 5.0**2
    freedom = sum(variances) ** 2 / (variances[0] ** 2 + variances[1] ** 2)
    reach = stats.t.ppf(0.975, freedom) * sum(variances) ** 0.5
    difference = 200 / 2.25 - 200 / 4.5
    assert (found.lo, found.hi) == pytest.approx((difference - reach, difference + reach))


def test_prompts_are_paired_in_differences() -> None:
    """Prompts that differ alike on both sides leave the difference certain."""
    times = np.array([[1.0, 5.0], [1.0, 5.0]])
    found = difference_interval(grid(times), grid(times))
    assert found is not None
    assert (found.lo, found.hi) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize("windows", [0, 1])
def test_too_few_windows_give_no_interval(windows: int) -> None:
    """One window says nothing of how windows differ."""
    few = grid(np.ones((windows, 3)))
    assert rate_interval(few) is None
    assert ratio_interval(few, grid(np.ones((3, 3)))) is None


def test_no_shared_prompt_or_no_rate_gives_no_interval() -> None:
    """Nothing to pair, or nothing produced: no interval, no error."""
    other = Grid(("x",), np.full((2, 1), 100.0), np.ones((2, 1)))
    assert ratio_interval(grid(np.ones((2, 1))), other) is None
    assert rate_interval(grid(np.ones((2, 2)), tokens=0.0)) is None


def test_one_productive_prompt_still_has_windows() -> None:
    """Where all tokens come from one prompt, only windows are a source of uncertainty."""
    times = np.array([[1.0, 1.0], [1.2, 1.0], [1.1, 1.0]])
    tokens = np.array([[100.0, 0.0]] * 3)
    found = rate_interval(Grid(("a", "b"), tokens, times))
    assert found is not None
    assert found.lo < 300 / 6.3 < found.hi


def test_pool_stacks_windows_and_matches_prompts() -> None:
    """Two launches of one configuration become one grid."""
    left = Grid(("a", "b"), np.array([[1.0, 2.0]]), np.array([[10.0, 20.0]]))
    right = Grid(("b", "c"), np.array([[3.0, 4.0]]), np.array([[30.0, 40.0]]))
    both = pool([left, right])
    assert both.prompts == ("a", "b", "c")
    assert both.amount.tolist() == [[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]]
    assert both.time_s.tolist() == [[10.0, 20.0, 0.0], [0.0, 30.0, 40.0]]
    assert both.windows == 2


@pytest.mark.parametrize(
    ("windows", "prompts", "prompt_spread"), [(4, 1, 0.0), (4, 10, 0.2), (2, 4, 0.1)]
)
def test_intervals_cover_the_truth(windows: int, prompts: int, prompt_spread: float) -> None:
    """Of 400 simulated trials about 95 % hold the true rate, even with two or four windows."""
    random = np.random.default_rng(20260102)
    hits = 0
    for _ in range(400):
        by_prompt = random.normal(0, prompt_spread, prompts)[None, :]
        by_window = random.normal(0, 0.02, windows)[:, None]
        noise = random.normal(0, 0.02, (windows, prompts))
        found = rate_interval(grid(np.exp(by_prompt + by_window + noise)))
        truth = 100.0 / np.exp((prompt_spread**2 + 2 * 0.02**2) / 2)
        hits += found is not None and found.lo <= truth <= found.hi
    assert 0.91 <= hits / 400 <= 0.99
