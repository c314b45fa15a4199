"""Tests of the report's tables of predictions: what is missing is empty."""

from __future__ import annotations

from typing import Any

from fakes.tables import baseline, chain, table

from sweep.analysis.prediction import find_lines
from sweep.report.predictions import HEADINGS, PredictionTable, prediction_tables

SHARES = (0.8, 0.6, 0.3, 0.1)


def tables(*rows: dict[str, Any], several_nodes: bool = False) -> tuple[PredictionTable, ...]:
    """The tables of rows beside a baseline."""
    lines = find_lines(table([baseline(), *rows]))
    return prediction_tables(lines, several_nodes=several_nodes)


def true(steps: int, **cells: Any) -> dict[str, Any]:
    """A chain whose verification takes 10 ms and 1 ms for each token."""
    return chain(steps, verify_ms=10.0 + (steps + 1), shares=SHARES) | cells


def test_what_was_predicted_stands_beside_what_was_measured() -> None:
    """A cell for each heading; a step count that was not launched has predictions alone."""
    (found,) = tables(true(1), true(2, accept_length=2.5), true(4), several_nodes=True)
    assert found.title == "node-a: default, code, concurrency 1"
    assert {len(row) for row in found.rows} == {len(HEADINGS)}
    cells = [dict(zip((name for name, _ in HEADINGS), row, strict=True)) for row in found.rows]
    assert [row["steps"] for row in cells] == ["1", "2", "3", "4"]
    assert (cells[1]["τ predicted"], cells[1]["τ measured"], cells[1]["error"]) == (
        "2.40", "2.50", "-4.0%",
    )  # fmt: skip
    assert cells[2]["tok/s predicted"] == "182"
    assert {name for name, cell in cells[2].items() if not cell} == {
        "τ measured", "error", "verify measured", "residual", "cycle measured", "tok/s measured",
        "error without it",
    }  # fmt: skip
    assert found.notes[0].startswith("Cost model of default")
    assert found.notes[1] == (
        "Verification: 10.00 + 1.000 × n ms, n = 1 × (steps + 1) tokens. "
        "Drafting: 0.00 + 0.100 × steps ms. The rest: 0.500 ms."
    )


def test_a_refused_fit_says_why() -> None:
    """Accept lengths stay, times are as measured or empty."""
    (found,) = tables(true(1), true(4))
    assert found.notes == ("No cost model: the times of 2 step counts can be fitted, 3 needed.",)
    assert {row[4] for row in found.rows} == {""}
    assert found.rows[0][1] == "1.80"


def test_without_acceptance_by_position_times_are_shown_alone() -> None:
    """And where there are no times either, there is no table."""
    rows = [true(steps, p_1=None) for steps in (1, 2, 3)]
    (found,) = tables(*rows)
    assert found.notes[0].startswith("Acceptance by position is not known")
    assert {row[1] for row in found.rows} == {""}
    assert tables(*(row | {"verify_ms": None} for row in rows)) == ()
