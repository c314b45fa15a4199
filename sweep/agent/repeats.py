"""When a trial has enough windows."""

from __future__ import annotations

import math
import statistics
from typing import Optional, Sequence

from sweep.agent import wire


def enough(throughputs: Sequence[Optional[float]], repeats: wire.Repeats) -> bool:
    """Whether the windows measured so far, with these throughputs [tokens/s], are enough.

    n windows with mean m and sample standard deviation s are enough when n >= min and
        t[n] * s / sqrt(n) / m <= relative_ci,
    the half-width of Student's two-sided 95 % interval of the mean, relative to the mean; and in
    any case when n >= max. Where a throughput is unknown (None) there is no interval that more
    windows could narrow, and `min` windows are enough.
    """
    n = len(throughputs)
    if n < repeats.min:
        return False
    if n >= repeats.max:
        return True
    known = [value for value in throughputs if value is not None]
    if len(known) < n:
        return True
    half_width = relative_half_width(known, repeats)
    return half_width is not None and half_width <= repeats.relative_ci


def relative_half_width(throughputs: Sequence[float], repeats: wire.Repeats) -> Optional[float]:
    """Half-width of the 95 % interval of the mean ÷ the mean; None: not defined, as for one
    window, whose quantile is null."""
    n = len(throughputs)
    quantile = repeats.t_quantiles[n] if n < len(repeats.t_quantiles) else None
    if quantile is None:
        return None
    mean = statistics.mean(throughputs)
    if mean <= 0:
        return None
    return quantile * statistics.stdev(throughputs) / math.sqrt(n) / mean
