"""Drawn acceptances, noise and texts."""

from __future__ import annotations

from itertools import islice
from statistics import mean, stdev

import pytest

from sweep.simulator.decoding import AcceptedDrafts, noise_factor, words


def drawn(conditional: list[float], seed: str, cycles: int) -> list[int]:
    """Accepted draft tokens of so many cycles."""
    draws = AcceptedDrafts(conditional, seed)
    return [draws.draw() for _ in range(cycles)]


def test_the_same_seed_gives_the_same_counts() -> None:
    """Counts of a prompt repeat exactly; another seed gives others."""
    first = drawn([0.67, 0.55, 0.2], "a", 50)
    assert drawn([0.67, 0.55, 0.2], "a", 50) == first
    assert drawn([0.67, 0.55, 0.2], "b", 50) != first


def test_every_answer_is_near_the_acceptance_and_all_together_are_at_it() -> None:
    """At each position, within one of n·p; on average over seeds, without bias."""
    counts = [drawn([0.67, 0.55], str(seed), 70) for seed in range(300)]
    for answer in counts:
        first, second = (sum(accepted >= k for accepted in answer) for k in (1, 2))
        assert abs(first - 70 * 0.67) < 1
        assert abs(second - first * 0.55) < 1
    assert mean(map(mean, counts)) == pytest.approx(0.67 + 0.67 * 0.55, rel=0.005)


def test_extremes() -> None:
    """Nothing drafted, never accepted, always accepted."""
    assert drawn([], "a", 3) == [0, 0, 0]
    assert drawn([0.0, 1.0], "a", 3) == [0, 0, 0]
    assert drawn([1.0, 1.0], "a", 3) == [2, 2, 2]


def test_noise_has_the_given_size() -> None:
    """1 on average, with the standard deviation in percent."""
    factors = [noise_factor(2.0, "s", number) for number in range(500)]
    assert mean(factors) == pytest.approx(1.0, abs=0.005)
    assert stdev(factors) == pytest.approx(0.02, rel=0.2)
    assert noise_factor(0.0, "s") == 1.0


def test_texts_follow_from_the_prompt_alone() -> None:
    """So that answers can be compared with the baseline's."""
    assert list(islice(words("a"), 20)) == list(islice(words("a"), 20))
    assert list(islice(words("a"), 20)) != list(islice(words("b"), 20))
