"""95 % intervals of rates and of ratios of rates, resampled by prompt and by window.

A rate is a ratio of sums over a grid of windows × prompts. Its uncertainty has two sources here:
windows (the same work takes different times) and prompts (other prompts would give another
rate). Both are resampled by leaving one out (the delete-one jackknife: Tukey 1958; Efron and
Tibshirani 1993, chapter 11), on the logarithm, so that intervals stay positive and ratios are
differences. The two variances are added; Student's t takes the Welch-Satterthwaite degrees of
freedom. The jackknife is chosen over bootstrap percentiles because there are as few as two to four
windows, for which percentiles are far too narrow; it is deterministic and needs no seed.

For a ratio of two configurations the same prompt is left out on both sides at once (paired), and
windows on each side by itself. The third source, that another launch of the same server may
differ, cannot be seen in one launch: it is not in these intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

CONFIDENCE = 0.95
MIN_WINDOWS = 2
"""With one window nothing is known of how windows differ: no interval."""


@dataclass(frozen=True)
class Interval:
    """A two-sided 95 % interval, in the unit of its estimate."""

    lo: float
    hi: float


@dataclass(frozen=True)
class Grid:
    """Amount and time of windows (rows) × prompts (columns); `rate` is the ratio of their sums.

    `amount` in tokens, `time_s` in seconds; both 0 where a prompt has no part in a window.
    """

    prompts: tuple[str, ...]
    amount: NDArray[np.float64]
    time_s: NDArray[np.float64]

    @property
    def windows(self) -> int:
        """The number of windows."""
        return int(self.amount.shape[0])

    @property
    def rate(self) -> float | None:
        """Sum of amounts ÷ sum of times [1/s]; None when there is no time."""
        total = float(self.time_s.sum())
        return float(self.amount.sum()) / total if total > 0 else None

    def only(self, prompts: Sequence[str]) -> Grid:
        """The same grid with the columns of `prompts`, in their order."""
        columns = [self.prompts.index(prompt) for prompt in prompts]
        return Grid(tuple(prompts), self.amount[:, columns], self.time_s[:, columns])


def pool(grids: Sequence[Grid]) -> Grid:
    """Stack the windows of grids that measured the same thing; prompts are matched by id."""
    prompts = tuple(dict.fromkeys(prompt for grid in grids for prompt in grid.prompts))
    place = {prompt: column for column, prompt in enumerate(prompts)}
    shape = (sum(grid.windows for grid in grids), len(prompts))
    amount, time_s = np.zeros(shape), np.zeros(shape)
    row = 0
    for grid in grids:
        columns = [place[prompt] for prompt in grid.prompts]
        amount[row : row + grid.windows, columns] = grid.amount
        time_s[row : row + grid.windows, columns] = grid.time_s
        row += grid.windows
    return Grid(prompts, amount, time_s)


def rate_interval(grid: Grid) -> Interval | None:
    """Return the 95 % interval of a grid's rate; None with fewer than two windows or no rate."""
    rate = grid.rate
    if grid.windows < MIN_WINDOWS or not rate:
        return None
    sources = [_spread(_log_rates(grid, axis=0)), _spread(_log_rates(grid, axis=1))]
    return _interval(rate, sources)


def relative_half_width(grid: Grid) -> float | None:
    """Half-width of Student's 95 % interval of the mean rate of windows ÷ that mean, a fraction.

    By this the node decides whether windows are enough; None with fewer than two or no rate.
    """
    time_s = grid.time_s.sum(axis=1)
    if grid.windows < MIN_WINDOWS or not grid.rate or not (time_s > 0).all():
        return None
    rates = grid.amount.sum(axis=1) / time_s
    quantile = float(special.stdtrit(grid.windows - 1, 0.5 + CONFIDENCE / 2))
    spread = float(rates.std(ddof=1)) / float(rates.mean())
    return float(quantile * spread / grid.windows**0.5)


def ratio_interval(numerator: Grid, denominator: Grid) -> Interval | None:
    """Return the 95 % interval of rate(numerator) ÷ rate(denominator), paired by prompt.

    None when a side has fewer than two windows or no rate, or when they share no prompt.
    """
    sides = _shared(numerator, denominator)
    if sides is None:
        return None
    above, below = sides
    sources = [
        _spread(_log_rates(above, axis=0)),
        _spread(_log_rates(below, axis=0)),
        _spread(_log_rates(above, axis=1) - _log_rates(below, axis=1)),
    ]
    return _interval((above.rate or 0.0) / (below.rate or 1.0), sources)


def difference_interval(minuend: Grid, subtrahend: Grid) -> Interval | None:
    """Return the 95 % interval of rate(minuend) - rate(subtrahend), paired by prompt [1/s].

    None when a side has fewer than two windows or no rate, or when they share no prompt.
    """
    sides = _shared(minuend, subtrahend)
    if sides is None:
        return None
    above, below = sides
    sources = [
        _spread(_rates(above, axis=0)),
        _spread(_rates(below, axis=0)),
        _spread(_rates(above, axis=1) - _rates(below, axis=1)),
    ]
    difference, reach = (above.rate or 0.0) - (below.rate or 0.0), _reach(sources)
    return Interval(difference - reach, difference + reach)


def _shared(one: Grid, other: Grid) -> tuple[Grid, Grid] | None:
    """Return two grids with the prompts that both have; None: nothing is known of their spread."""
    shared = [prompt for prompt in one.prompts if prompt in other.prompts]
    if not shared or min(one.windows, other.windows) < MIN_WINDOWS:
        return None
    sides = one.only(shared), other.only(shared)
    return sides if all(side.rate for side in sides) else None


@dataclass(frozen=True)
class _Source:
    """Variance of an estimate, or of its logarithm, from one source, and its degrees of freedom."""

    variance: float
    freedom: int


def _rates(grid: Grid, axis: int) -> NDArray[np.float64]:
    """The rates with each row (axis 0) or column (axis 1) left out in turn."""
    other = 1 - axis
    amount, time_s = grid.amount.sum(axis=other), grid.time_s.sum(axis=other)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates: NDArray[np.float64] = (amount.sum() - amount) / (time_s.sum() - time_s)
    return rates


def _log_rates(grid: Grid, axis: int) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: NDArray[np.float64] = np.log(_rates(grid, axis))
    return logs


def _spread(left_out: NDArray[np.float64]) -> _Source:
    """Jackknife variance of n leave-one-out values: (n-1)/n × their sum of squares."""
    count = left_out.size
    # One prompt or one window says nothing of its source, and a rate may rest on one alone.
    if count < MIN_WINDOWS or not np.isfinite(left_out).all():
        return _Source(0.0, 0)
    squares = float(((left_out - left_out.mean()) ** 2).sum())
    return _Source((count - 1) / count * squares, count - 1)


def _interval(estimate: float, sources: Sequence[_Source]) -> Interval:
    reach = _reach(sources)
    return Interval(float(estimate * np.exp(-reach)), float(estimate * np.exp(reach)))


def _reach(sources: Sequence[_Source]) -> float:
    """Half of the 95 % interval to which independent sources add up."""
    variance = sum(source.variance for source in sources)
    if variance == 0.0:
        return 0.0
    parts = sum(source.variance**2 / source.freedom for source in sources if source.freedom)
    freedom = variance**2 / parts
    return float(special.stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * float(variance**0.5)
