"""Tests of predictions over draft steps, against chains of known costs and acceptance."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from fakes.tables import baseline, chain, table

from sweep.analysis.optimum import optimum_sentence, prediction_findings
from sweep.analysis.prediction import Line, find_lines

SHARES = (0.8, 0.6, 0.3, 0.1, 0.05, 0.02)
"""τ of 1 to 6 steps: 1.8, 2.4, 2.7, 2.8, 2.85, 2.87."""


def true(steps: int, **cells: Any) -> dict[str, Any]:
    """A chain whose verification takes 10 ms and 1 ms for each token."""
    return chain(steps, verify_ms=10.0 + (steps + 1), shares=SHARES) | cells


def line(*rows: dict[str, Any]) -> Line:
    """The only line of these rows and a baseline."""
    (found,) = find_lines(table([baseline(), *rows]))
    return found


def test_the_longest_chain_predicts_the_shorter_ones() -> None:
    """1 + p_1 + … + p_s of the longest, beside what each measured."""
    found = line(true(2, accept_length=2.5), true(6))
    assert found.longest == 6
    assert [step.steps for step in found.steps] == [1, 2, 3, 4, 5, 6]
    lengths = [step.accept_length for step in found.steps]
    assert lengths == pytest.approx([1.8, 2.4, 2.7, 2.8, 2.85, 2.87])
    errors = {step.steps: step.accept_length_error for step in found.steps}
    assert errors[2] == pytest.approx(2.4 / 2.5 - 1)
    assert errors[6] == pytest.approx(0.0)
    assert errors[3] is None


def test_step_counts_that_were_not_launched_are_predicted() -> None:
    """τ ÷ cycle of 3 steps is highest: 2.7 tokens in 10 + 4 + 0.3 + 0.5 ms."""
    found = line(true(1), true(2), true(6))
    best = found.optimum
    assert best is not None
    assert best.steps == 3
    assert best.measured.decode_tok_s is None
    assert best.verify_ms == pytest.approx(14.0)
    assert best.cycle_ms == pytest.approx(14.8)
    assert best.decode_tok_s == pytest.approx(2700 / 14.8)
    rates = [step.decode_tok_s for step in found.steps]
    assert rates == pytest.approx(
        [1.0 + sum(SHARES[:s]) for s in range(1, 7)]
        / pd.Series([(11.5 + 1.1 * s) / 1000 for s in range(1, 7)]).to_numpy()
    )
    assert found.baseline_tok_s == 90.0


def test_residuals_and_errors_are_of_what_was_measured() -> None:
    """A chain 2 ms off the line of the others: that is its error once it is left out."""
    rows = [true(1), true(2), true(4), true(6)]
    rows[1] = chain(2, verify_ms=15.0, shares=SHARES)
    found = line(*rows)
    step = found.steps[1]
    assert step.verify_residual_ms is not None
    assert 0.5 < step.verify_residual_ms < 2.0
    assert step.measured.decode_error == pytest.approx(15.7 / 13.7 - 1)
    assert found.steps[2].verify_residual_ms is None
    assert found.steps[2].measured.decode_error is None


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([true(1), true(3)], "the times of 2 step counts can be fitted, 3 needed"),
        (
            [true(1), true(2), true(3, verify_ms=None)],
            "the times of 2 step counts can be fitted, 3 needed (1 not timed)",
        ),
        (
            [true(1), true(2, flags="one_prompt instrument_disagrees"), true(3)],
            "the times of 2 step counts can be fitted, 3 needed (1 flagged instrument_disagrees)",
        ),
        (
            [true(1, verified_tokens=4.0), true(2, verified_tokens=2.1), true(3)],
            (
                "the times of 1 step count can be fitted, 3 needed "
                "(2 verifying other than steps + 1 tokens)"
            ),
        ),
    ],
)
def test_too_little_is_refused_with_a_reason(rows: list[dict[str, Any]], reason: str) -> None:
    """No cost model, no throughput, no sentence of an optimum; accept lengths stay."""
    frame = table([baseline(), *rows])
    (found,) = find_lines(frame)
    assert found.refused == reason
    assert found.costs is None
    assert found.optimum is None
    assert {step.cycle_ms for step in found.steps} == {None}
    assert found.steps[0].accept_length == pytest.approx(1.8)
    assert not any("Cost model" in text for text in prediction_findings([found]))
    with pytest.raises(ValueError, match="nothing is predicted of default"):
        optimum_sentence(found)


def test_only_what_ended_ok_counts() -> None:
    """A chain that failed is neither fitted nor shown as measured."""
    found = line(true(1), true(2), true(3), true(4), true(6, state="failed"))
    assert found.longest == 4
    assert found.costs is not None


def test_trees_what_confirms_and_what_ran_without_probe_are_no_chains_of_a_line() -> None:
    """Three chains and others beside them make one line of three."""
    others = [
        true(4, topk=2), true(5, role="unprofiled"), true(5, role="confirm"),
        true(5, num_steps=None),
    ]  # fmt: skip
    found = line(true(1), true(2), true(3), *others)
    assert [step.steps for step in found.steps] == [1, 2, 3]


def test_lines_are_apart_by_everything_but_their_steps() -> None:
    """Places, variants and arms; a single step count is no line."""
    rows = [
        true(steps, **cells)
        for cells in (
            {"node": "b"}, {"workload": "chat"}, {"concurrency": 8, "verified_tokens": None},
            {"variant": "ring"},
        )
        for steps in (1, 2, 3)
    ]  # fmt: skip
    found = find_lines(table([*rows, true(1), baseline()]))
    assert [(item.node, item.workload, item.concurrency, item.name) for item in found] == [
        ("b", "code", 1, "default"),
        ("node-a", "chat", 1, "default"),
        ("node-a", "code", 8, "default"),
        ("node-a", "code", 1, "ring"),
    ]
    assert [item.baseline_tok_s for item in found] == [None, None, None, 90.0]
    assert find_lines(table([])) == ()


def test_a_batch_verifies_the_tokens_of_all_its_requests() -> None:
    """Eight requests of 3 tokens are 24."""
    found = line(
        *(
            chain(s, verify_ms=20.0 + 0.1 * 8 * (s + 1), shares=SHARES, concurrency=8)
            for s in (1, 2, 3)
        )
    )
    assert found.costs is not None
    assert found.costs.tokens(2) == 24
    assert found.costs.verify.at(24) == pytest.approx(22.4)


def test_without_acceptance_by_position_there_is_no_optimum() -> None:
    """Costs are fitted all the same."""
    rows = [true(steps, p_1=None) for steps in (1, 2, 3)]
    found = line(*rows)
    assert found.longest is None
    assert found.costs is not None
    assert found.optimum is None
    assert prediction_findings([found]) == ()


def test_the_optimum_is_told_with_what_was_measured_there() -> None:
    """In plain words, with the error of the prediction."""
    found = line(true(1), true(2), true(3, decode_tok_s=180.0), true(4))
    assert optimum_sentence(found) == (
        "Cost model of default (code, concurrency 1): the optimum is 3 steps, predicted 182 tok/s "
        "of decoding in one stream, 2.03× its baseline; measured 180 (predicted without its own "
        "times: off by +1.4%)."
    )


def test_an_optimum_that_was_not_launched_is_told_with_the_errors_of_the_others() -> None:
    """And with the fastest that was measured."""
    found = line(true(1), true(2, decode_tok_s=170.0), true(6))
    assert optimum_sentence(found).endswith(
        "; it was not measured. What was measured is predicted without its own times within 0.0% "
        "in the median, at worst off by +3.0% (2 steps). The fastest that was measured is 2 steps "
        "with 170."
    )


def test_an_optimum_at_the_end_may_not_be_the_best() -> None:
    """Longer chains are not known."""
    found = line(*(true(steps) for steps in (1, 2, 3)))
    assert optimum_sentence(found).endswith("No longer chain was measured: one may be faster.")


def test_each_place_has_one_optimum_and_all_lines_one_word_on_accept_lengths() -> None:
    """The line with the highest prediction speaks for its place."""
    slower = [chain(s, verify_ms=30.0 + s, shares=SHARES, variant="ring") for s in (1, 2, 3, 4)]
    faster = [true(s, accept_length=2.0 if s == 1 else 1 + sum(SHARES[:s])) for s in (1, 2, 3, 4)]
    told = prediction_findings(find_lines(table([baseline(), *slower, *faster])))
    assert len(told) == 2
    assert told[0].startswith("Cost model of default (code, concurrency 1)")
    assert told[1] == (
        "The acceptance of the longest chain predicts the accept length of 6 shorter ones "
        "(1 + p_1 + … + p_s) within 0.0% in the median, at worst off by -10.0% (1 step, default, "
        "code, concurrency 1)."
    )
