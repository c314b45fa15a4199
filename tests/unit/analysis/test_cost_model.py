"""Tests of the fits: they find the curve that made the points, and prefer the simple one."""

from __future__ import annotations

import math
import random

import pytest

from sweep.analysis.break_even import break_even_accept_length
from sweep.analysis.cost_model import (
    Affine,
    CostModel,
    Curve,
    Point,
    Saturating,
    TimedChain,
    fit_affine,
    fit_costs,
    fit_saturating,
    fit_verify,
    information,
    refit_costs,
)


def points(curve: Curve, *tokens: int, noise: float = 0.0, seed: int = 1) -> list[Point]:
    """Points of a curve, off by a relative noise."""
    chance = random.Random(seed)
    return [Point(n, curve.at(n) * (1.0 + chance.gauss(0.0, noise))) for n in tokens]


def test_an_affine_curve_is_found() -> None:
    """20 ms and 1.5 ms for each token, from three points and more."""
    for tokens in ((2, 3, 4), tuple(range(2, 12))):
        found = fit_affine(points(Affine(20.0, 1.5), *tokens))
        assert found.fixed_ms == pytest.approx(20.0)
        assert found.per_unit_ms == pytest.approx(1.5)


def test_least_squares_by_hand() -> None:
    """Through (1, 1), (2, 3), (3, 2) with equal weights: 1 + 0.5 n."""
    same = [Point(1, 1.0, 100.0), Point(2, 3.0, 100.0), Point(3, 2.0, 100.0)]
    found = fit_affine(same)
    assert found.fixed_ms == pytest.approx(1.0, rel=1e-3)
    assert found.per_unit_ms == pytest.approx(0.5, rel=1e-3)


def test_uncertain_points_weigh_less() -> None:
    """A mean that is off by 50 % with a standard error of 50 % hardly moves the curve."""
    true = Affine(20.0, 1.0)
    wrong = Point(12, 1.5 * true.at(12), 0.5 * true.at(12))
    trusted = Point(12, 1.5 * true.at(12))
    others = points(true, 2, 4, 6, 8)
    assert fit_affine([*others, wrong]).at(12) == pytest.approx(true.at(12), rel=0.01)
    assert fit_affine([*others, trusted]).at(12) > 1.2 * true.at(12)


def test_a_precise_mean_is_trusted_to_a_hundredth() -> None:
    """Its launch may differ from another by more than its own cycles do."""
    assert Point(2, 30.0, 0.001).sigma_ms == pytest.approx(0.3, rel=1e-3)
    assert Point(2, 30.0).sigma_ms == pytest.approx(0.3)
    assert Point(2, 30.0, 0.4).sigma_ms == pytest.approx(0.5)


def test_saturation_of_experts_is_found() -> None:
    """10 ms and 40 ms for all experts, of which a token needs 8 of 384."""
    true = Saturating(10.0, 40.0, 8 / 384)
    found = fit_saturating(points(true, *range(1, 129, 8)))
    assert found.fixed_ms == pytest.approx(10.0, rel=0.01)
    assert found.experts_ms == pytest.approx(40.0, rel=0.01)
    assert found.share == pytest.approx(8 / 384, rel=0.01)


def test_experts_saturate_as_tokens_choose_by_themselves() -> None:
    """Two tokens that need half of the experts each need three quarters together."""
    curve = Saturating(1.0, 100.0, 0.5)
    assert [curve.at(n) for n in (0, 1, 2)] == pytest.approx([1.0, 51.0, 76.0])


def test_saturation_is_chosen_only_when_clearly_better() -> None:
    """Bent points take it, straight ones do not, noise of 1 % included, and five are too few."""
    bent, straight = Saturating(5.0, 40.0, 0.2), Affine(20.0, 1.0)
    many = range(2, 18, 2)
    for seed in range(50):
        assert isinstance(fit_verify(points(bent, *many, noise=0.01, seed=seed)), Saturating)
        assert isinstance(fit_verify(points(straight, *many, noise=0.01, seed=seed)), Affine)
    assert isinstance(fit_verify(points(bent, *many[:5])), Affine)
    assert isinstance(fit_verify(points(straight, *many)), Affine)


def test_information_by_hand() -> None:
    """Residuals of one sigma each: n ln 1 + 2·3 + 2·3·4 ÷ (6 - 3 - 1) = 18."""
    off = [Point(n, 10.0, math.sqrt(0.99)) for n in range(6)]
    assert off[0].sigma_ms == pytest.approx(1.0)
    curve = Affine(11.0, 0.0)
    assert information(curve, off, parameters=2) == pytest.approx(18.0, abs=0.01)
    with pytest.raises(ValueError, match="4 points are too few for 2 parameters"):
        information(curve, off[:4], parameters=2)


def test_formulas_are_readable() -> None:
    """Costs with their units; a falling cost is a difference."""
    assert Affine(20.0, 1.5).formula("n") == "20.00 + 1.500 × n ms"
    assert Affine(20.0, -0.1).formula("steps") == "20.00 - 0.100 × steps ms"
    assert Saturating(5.0, 40.0, 0.2).formula("n") == "5.00 + 40.00 × (1 - 0.8000^n) ms"


def timed(steps: int, verify_ms: float, batch: int = 1) -> TimedChain:
    """A chain whose draft takes 0.3 ms and 0.1 ms for each step, and the rest 0.5 ms."""
    return TimedChain(steps, batch * (steps + 1.0), verify_ms, 0.3 + 0.1 * steps, 0.5)


def test_a_cycle_is_verify_draft_and_rest() -> None:
    """Of 4 steps, which were not launched: 20 + 8 × 5 tokens of 0.1 ms, 0.7 and 0.5 ms."""
    chains = [timed(steps, 20.0 + 0.1 * 8 * (steps + 1), batch=8) for steps in (1, 2, 6)]
    model = fit_costs(chains, batch=8)
    assert model.tokens(4) == 40
    assert model.verify_ms(4) == pytest.approx(24.0)
    assert model.cycle_ms(4) == pytest.approx(25.2)
    assert model.decode_tok_s(2.52, 4) == pytest.approx(100.0)


def test_a_model_without_one_of_its_chains() -> None:
    """It is of the others alone; of one chain there is none."""
    chains = [timed(1, 20.0), timed(2, 21.0), timed(5, 30.0)]
    model = fit_costs(chains, batch=1)
    without = refit_costs(model, chains[:2])
    assert without is not None
    assert without.verify_ms(5) == pytest.approx(24.0)
    assert refit_costs(model, chains[:1]) is None


def test_the_reference_case() -> None:
    """Cycles of 31.74 and 27.28 ms from their phases, against 11.1 ms per token: τ* 2.86 and 2.46.

    Verification in proportion to tokens (28.45 ms for 6) would take 14.2 ms for 3; with the fixed
    cost that was measured it takes 21 ms and more.
    """
    for draft_ms, verify_ms, rest_ms, limit in (
        (2.18, 28.45, 1.12, 2.86),
        (0.93, 26.07, 0.28, 2.46),
    ):
        model = CostModel(1, Affine(verify_ms, 0.0), Affine(0.0, draft_ms / 5), rest_ms)
        assert model.cycle_ms(5) == pytest.approx(draft_ms + verify_ms + rest_ms)
        found = break_even_accept_length(model.cycle_ms(5) / 1000, 0.0111)
        assert found == pytest.approx(limit, abs=0.006)
    proportional = Affine(0.0, 28.45 / 6)
    assert proportional.at(3) == pytest.approx(14.3, abs=0.1)
    assert fit_affine([Point(3, 21.0), Point(6, 28.45)]).fixed_ms == pytest.approx(13.55)
