"""How well a draft is accepted: pure formulas over raw counts, summed over requests.

Counts, in the sense of every engine once translated: C cycles (one draft and one verification
each), D draft tokens sent to verification without the root, A accepted draft tokens without the
bonus token. Ratios are ratios of sums, never means of per-request ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, zip_longest


def accept_length(accepted_tokens: int, cycles: int) -> float | None:
    """Return τ = 1 + A/C [tokens per cycle], the bonus token included; None without cycles.

    Source: EAGLE-3 (arXiv 2503.01840), section 4, "average number of tokens generated per
    drafting-verification cycle"; the convention of the bonus is vLLM's.
    """
    return None if cycles <= 0 else 1.0 + accepted_tokens / cycles


def acceptance_rate(accepted_tokens: int, drafted_tokens: int) -> float | None:
    """Return A/D [fraction, 0 to 1], the bonus in neither; None without draft tokens.

    With a tree (topk > 1) D counts nodes that cannot all be accepted, so trees and chains do not
    compare. Source: vLLM's acceptance metrics.
    """
    return None if drafted_tokens <= 0 else accepted_tokens / drafted_tokens


def sum_histograms(histograms: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Add up counts of cycles by what they accepted, each as long as its deepest acceptance."""
    return tuple(map(sum, zip_longest(*histograms, fillvalue=0)))


def position_shares(cycles_by_accepted: Sequence[int], steps: int) -> tuple[float, ...]:
    """Return p_1, p_2 … [fraction]: the share of cycles that accepted at least so many tokens.

    `cycles_by_accepted[k]` is the number of cycles that accepted exactly k. As many as there are
    draft steps, or as the deepest acceptance; () without cycles. They are not conditional on each
    other: τ = 1 + p_1 + p_2 + …. Source: vLLM's acceptance by position.
    """
    cycles = sum(cycles_by_accepted)
    if cycles <= 0:
        return ()
    deepest = max(k for k, count in enumerate(cycles_by_accepted) if count)
    at_least = list(accumulate(reversed(cycles_by_accepted)))[::-1]
    reached = [count / cycles for count in at_least[1 : deepest + 1]]
    return (*reached, *[0.0] * (steps - deepest))


def chain_accept_length(shares: Sequence[float], steps: int) -> float | None:
    """Return τ(s) ≈ 1 + p_1 + … + p_s [tokens per cycle]: what a chain of `steps` would accept, by
    the shares of a longer one; None when they do not reach so far.

    A draft does not depend on how many steps follow it, so that a shorter chain accepts what the
    first steps of a longer one do. An approximation: its cycles begin elsewhere in the text.
    """
    return None if len(shares) < steps else 1.0 + sum(shares[:steps])
