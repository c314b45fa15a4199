"""Windows stop when the interval is narrow, never before min, always at max."""

from __future__ import annotations

import pytest

from sweep.agent import wire
from sweep.agent.repeats import enough, relative_half_width

T = [None, None, 12.7062, 4.3027, 3.1824, 2.7764, 2.5706]


def rule(low: int, high: int, relative_ci: float) -> wire.Repeats:
    """A rule with Student's quantiles for up to six windows."""
    return wire.Repeats(low, high, relative_ci, list(T))


def test_half_width_by_hand() -> None:
    """98, 100, 102: s = 2, so t * 2 / sqrt(3) / 100 = 4.3027 * 0.011547."""
    assert relative_half_width([98, 100, 102], rule(1, 6, 0)) == pytest.approx(0.049683, abs=1e-6)


def test_not_before_min() -> None:
    """Equal windows have no spread, and are still not enough before min."""
    assert not enough([100.0, 100.0], rule(3, 6, 0.01))
    assert enough([100.0, 100.0, 100.0], rule(3, 6, 0.01))


def test_stops_when_narrow_enough() -> None:
    """The same three windows are enough at 5 % and not at 4.9 %."""
    assert enough([98, 100, 102], rule(3, 6, 0.05))
    assert not enough([98, 100, 102], rule(3, 6, 0.049))


def test_always_at_max() -> None:
    """However wide the interval, max windows are enough."""
    assert not enough([10.0, 200.0], rule(2, 3, 0.01))
    assert enough([10.0, 200.0, 400.0], rule(2, 3, 0.01))


def test_one_window_has_no_interval() -> None:
    """With min 1, one window does not satisfy a rule that needs an interval."""
    assert not enough([100.0], rule(1, 2, 0.5))
    assert enough([100.0], rule(1, 1, 0.5))


def test_unknown_throughput_stops_at_min() -> None:
    """Where the server reports no tokens, more windows would narrow nothing."""
    assert not enough([None], rule(2, 6, 0.01))
    assert enough([None, 100.0], rule(2, 6, 0.01))


def test_no_throughput_is_never_precise() -> None:
    """A mean of 0 has no relative interval."""
    assert not enough([0.0, 0.0], rule(2, 6, 0.5))
