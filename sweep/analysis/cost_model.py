"""What verification and drafting cost: curves fitted to measured means, by weighted least squares.

Times are in milliseconds, as in the table. Two forms of verification are known: one that is affine
in the tokens, and one that flattens because a mixture of experts reads each expert only once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq
from scipy.optimize import minimize_scalar, nnls

MIN_POINTS = 3
"""Two points lie on any line: their fit would have nothing to show whether it holds."""
LEAST_RELATIVE_ERROR = 0.01
"""No mean is trusted better than this: how much launches differ is not in one launch's error."""
CLEARLY_BETTER = 10.0
"""Difference in AICc from which the other form has essentially no support (Burnham and Anderson,
Model Selection and Multimodel Inference, 2002, section 2.6)."""
_MS_PER_S = 1000.0
_LEAST_MISFIT = 1e-4
"""Of the weighted square of a residual: smaller ones tell nothing of a form."""
_SHARES = (1e-3, 0.999)
"""Between which the share of experts that a token needs is searched."""


@dataclass(frozen=True)
class Point:
    """A measured mean: `at` tokens or steps, `ms`, and its standard error; None: not known."""

    at: float
    ms: float
    error_ms: float | None = None

    @property
    def sigma_ms(self) -> float:
        """What weighs the point [ms]: its standard error, and the least that launches differ by."""
        return math.hypot(self.error_ms or 0.0, LEAST_RELATIVE_ERROR * self.ms)


@dataclass(frozen=True)
class Affine:
    """a + b·n [ms]: a fixed cost, and one for each token or step.

    Source: a pass over a model reads its weights once, whatever the number of tokens, and computes
    for each of them (the roofline model: Williams, Waterman and Patterson 2009).
    """

    fixed_ms: float
    per_unit_ms: float

    def at(self, n: float) -> float:
        """The cost of n [ms]."""
        return self.fixed_ms + self.per_unit_ms * n

    def formula(self, unit: str) -> str:
        """In words, with `unit` for what is counted."""
        sign = "-" if self.per_unit_ms < 0 else "+"
        return f"{self.fixed_ms:z.2f} {sign} {abs(self.per_unit_ms):.3f} × {unit} ms"


@dataclass(frozen=True)
class Saturating:
    """a + b·(1 - (1 - q)^n) [ms]: a fixed cost, and reading the experts that n tokens need.

    `experts_ms` (b) is the cost of all experts, `share` (q) of them one token needs; n tokens that
    choose by themselves need 1 - (1 - q)^n of them. Source: the expected number of active experts
    of MoESD, arXiv 2505.19645.
    """

    fixed_ms: float
    experts_ms: float
    share: float

    def at(self, n: float) -> float:
        """The cost of n tokens [ms]."""
        return self.fixed_ms + self.experts_ms * (1.0 - math.pow(1.0 - self.share, n))

    def formula(self, unit: str) -> str:
        """In words, with `unit` for what is counted."""
        return (
            f"{self.fixed_ms:.2f} + {self.experts_ms:.2f} × (1 - {1.0 - self.share:.4f}^{unit}) ms"
        )


Curve: TypeAlias = Affine | Saturating


def fit_affine(points: Sequence[Point]) -> Affine:
    """Return the affine curve with the least weighted squares; needs two different `at`."""
    at, weighted_ms, weight = _weighted(points)
    found = lstsq(np.column_stack([weight, weight * at]), weighted_ms)[0]
    return Affine(float(found[0]), float(found[1]))


def fit_saturating(points: Sequence[Point]) -> Saturating:
    """Return the saturating curve with the least weighted squares; needs three different `at`.

    For a given share the curve is linear in its two costs, neither of which is below nothing, so
    that only the share is searched (variable projection: Golub and Pereyra 1973).
    """
    at, weighted_ms, weight = _weighted(points)

    def costs(log_share: float) -> tuple[NDArray[np.float64], float]:
        read = 1.0 - (1.0 - math.exp(log_share)) ** at
        found, misfit = nnls(np.column_stack([weight, weight * read]), weighted_ms)
        return found, float(misfit)

    limits = (math.log(_SHARES[0]), math.log(_SHARES[1]))
    searched = minimize_scalar(lambda log: costs(log)[1], bounds=limits, method="bounded")
    log_share = float(searched.x)
    found, _ = costs(log_share)
    return Saturating(float(found[0]), float(found[1]), math.exp(log_share))


def fit_verify(points: Sequence[Point]) -> Curve:
    """Return the cost of verification over tokens: affine, or saturating where that is clearly
    better by AICc, which takes six points."""
    affine = fit_affine(points)
    if _corrected(len({point.at for point in points}), parameters=3) is None:
        return affine
    saturating = fit_saturating(points)
    gain = information(affine, points, parameters=2) - information(saturating, points, parameters=3)
    return saturating if gain > CLEARLY_BETTER else affine


def refit(curve: Curve, points: Sequence[Point]) -> Curve | None:
    """Return a curve of the same form through other points; None when they do not allow it."""
    different = len({point.at for point in points})
    if isinstance(curve, Affine):
        return fit_affine(points) if different > 1 else None
    return fit_saturating(points) if different > MIN_POINTS else None


def information(curve: Curve, points: Sequence[Point], *, parameters: int) -> float:
    """Return AICc = n·ln(χ²/n) + 2k + 2k(k+1)/(n-k-1) [no unit], less is better.

    χ² is the sum of squared residuals ÷ sigma, k counts the parameters and the scale of the
    errors. Source: Burnham and Anderson 2002, sections 2.2 and 2.4. Needs n > k + 1.
    """
    count = len(points)
    correction = _corrected(count, parameters)
    if correction is None:
        raise ValueError(f"{count} points are too few for {parameters} parameters")
    square = sum(((point.ms - curve.at(point.at)) / point.sigma_ms) ** 2 for point in points)
    return count * math.log(max(square / count, _LEAST_MISFIT)) + correction


def _corrected(count: int, parameters: int) -> float | None:
    """The penalty of AICc; None: too few points."""
    k = parameters + 1
    return 2 * k + 2 * k * (k + 1) / (count - k - 1) if count > k + 1 else None


@dataclass(frozen=True)
class TimedChain:
    """Mean times of the cycles of a chain that was launched."""

    steps: int
    tokens: float
    """Verified in a cycle by the whole batch, roots included."""
    verify_ms: float
    draft_ms: float
    rest_ms: float
    """The cycle without the two."""
    verify_se_ms: float | None = None
    draft_se_ms: float | None = None


@dataclass(frozen=True)
class CostModel:
    """Cost of a cycle over draft steps s: verify(batch × (s + 1)) + draft(s) + rest.

    Drafting runs its steps one after the other, so it is affine in them; the rest (extension of the
    draft, the host) depends on neither and is a mean. `batch` in requests.
    """

    batch: int
    verify: Curve
    draft: Affine
    rest_ms: float

    def tokens(self, steps: int) -> int:
        """Tokens that a cycle verifies: each request's draft tokens and root."""
        return self.batch * (steps + 1)

    def verify_ms(self, steps: int) -> float:
        """Verification in a cycle [ms]."""
        return self.verify.at(self.tokens(steps))

    def cycle_ms(self, steps: int) -> float:
        """The whole cycle [ms]."""
        return self.verify_ms(steps) + self.draft.at(steps) + self.rest_ms

    def decode_tok_s(self, accept_length: float, steps: int) -> float:
        """Decode rate of one stream, τ(s) ÷ cycle(s) [tokens/s]."""
        return accept_length / self.cycle_ms(steps) * _MS_PER_S


def fit_costs(chains: Sequence[TimedChain], batch: int) -> CostModel:
    """Return the cost model of chains with at least MIN_POINTS different step counts."""
    return CostModel(batch, fit_verify(_verify(chains)), *_drafting(chains))


def refit_costs(model: CostModel, chains: Sequence[TimedChain]) -> CostModel | None:
    """Return a model of the same form through other chains; None when they do not allow it."""
    verify = refit(model.verify, _verify(chains))
    return CostModel(model.batch, verify, *_drafting(chains)) if verify is not None else None


def _verify(chains: Sequence[TimedChain]) -> list[Point]:
    return [Point(chain.tokens, chain.verify_ms, chain.verify_se_ms) for chain in chains]


def _drafting(chains: Sequence[TimedChain]) -> tuple[Affine, float]:
    points = [Point(chain.steps, chain.draft_ms, chain.draft_se_ms) for chain in chains]
    return fit_affine(points), fmean(chain.rest_ms for chain in chains)


def _weighted(
    points: Sequence[Point],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Where the points are, their times ÷ sigma, and 1 ÷ sigma."""
    at, ms, sigma_ms = (
        np.array([getattr(point, name) for point in points]) for name in ("at", "ms", "sigma_ms")
    )
    return at, ms / sigma_ms, 1.0 / sigma_ms
